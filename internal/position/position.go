// Package position has the text form of cursors: "42" or "42.3", and "p5-42.3" inside a
// plan.
package position

import (
	"strconv"
	"strings"
)

// Position is a cursor's.
type Position struct {
	Seq         uint64
	Incarnation uint64 // 0: not given
	InPlan      bool
	PlanFrames  uint64
}

// Append appends the text form to dst. The first incarnation is not given.
func (p Position) Append(dst []byte) []byte {
	if p.InPlan {
		dst = append(dst, 'p')
		dst = strconv.AppendUint(dst, p.PlanFrames, 10)
		dst = append(dst, '-')
	}
	dst = strconv.AppendUint(dst, p.Seq, 10)
	if p.Incarnation > 1 {
		dst = append(dst, '.')
		dst = strconv.AppendUint(dst, p.Incarnation, 10)
	}
	return dst
}

// Parse reads what Append writes, and nothing else.
func Parse(s string) (p Position, ok bool) {
	rest := s
	if after, ok := strings.CutPrefix(rest, "p"); ok {
		frames, tail, found := strings.Cut(after, "-")
		n, valid := parseDecimal(frames)
		if !found || !valid {
			return Position{}, false
		}
		p.InPlan, p.PlanFrames, rest = true, n, tail
	}
	seq, incarnation, dotted := strings.Cut(rest, ".")
	n, valid := parseDecimal(seq)
	if !valid {
		return Position{}, false
	}
	p.Seq = n
	if dotted {
		n, valid := parseDecimal(incarnation)
		if !valid || n < 2 {
			return Position{}, false
		}
		p.Incarnation = n
	}
	return p, true
}

// parseDecimal accepts what AppendUint writes and nothing else: no sign, no
// leading zero, at most 2^53-1 so that every client can hold it.
func parseDecimal(s string) (uint64, bool) {
	if s == "" || len(s) > 16 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + uint64(d)
	}
	return n, n < 1<<53
}
