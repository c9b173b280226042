package provider

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// File is a file of a message, ready for a request.
type File struct {
	URL   string
	Media string // its type, as far as anyone said it
	Name  string // never empty
	Data  string // base64, if URL is a data URL
	IsURL bool   // URL is an address, not the data
}

// Kind is the first half of the media type.
func (f *File) Kind() string {
	kind, _, _ := strings.Cut(f.Media, "/")
	return kind
}

// FileOf reads a part of type file.
func FileOf(p *chunk.Part) File {
	f := File{URL: p.URL, Media: p.MediaType, Name: p.Filename, IsURL: true}
	if f.Name == "" {
		f.Name = "file"
	}
	head, data, ok := strings.Cut(p.URL, ",")
	if !ok || !strings.HasPrefix(head, "data:") {
		return f
	}
	f.IsURL = false
	if f.Media == "" {
		f.Media, _, _ = strings.Cut(strings.TrimPrefix(head, "data:"), ";")
	}
	if strings.HasSuffix(head, ";base64") {
		f.Data = data
	} else if text, err := url.PathUnescape(data); err == nil {
		f.Data = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return f
}

// Text returns the file's text if it has one of its own.
func (f *File) Text() (string, bool) {
	if f.IsURL || f.Kind() != "text" && !strings.HasSuffix(f.Media, "json") {
		return "", false
	}
	b, err := base64.StdEncoding.DecodeString(f.Data)
	return string(b), err == nil
}

// Link returns a link to the file, for a model that cannot take the file itself.
func (f *File) Link() string { return "[" + f.Name + "](" + f.URL + ")" }
