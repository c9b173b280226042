// Package uuid makes UUIDs.
package uuid

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// V7 returns a UUID of version 7: Unix milliseconds, then random bits.
func V7(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	return string(s[:])
}
