// Package uuid makes UUIDs.
package uuid

import (
	"crypto/rand"
	"crypto/sha1" // what version 5 is made with; nothing is kept secret by it
	"encoding/hex"
	"io"
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
	return text(&b, 0x70)
}

// V4 returns a random UUID.
func V4() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return text(&b, 0x40)
}

// Named returns the UUID of version 5 for a name: the same name has the same UUID.
// Names of a URL's form do not clash with those of other programs.
func Named(name string) string {
	h := sha1.New()
	h.Write(urls[:])
	io.WriteString(h, name)
	var b [16]byte
	copy(b[:], h.Sum(nil))
	return text(&b, 0x50)
}

// urls is the namespace of URLs.
var urls = [16]byte{0x6b, 0xa7, 0xb8, 0x11, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}

// text is a UUID of a version.
func text(b *[16]byte, version byte) string {
	b[6] = b[6]&0x0f | version
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
