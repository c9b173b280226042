package merlin

import (
	"cmp"
	"maps"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// source is a citation, or a link that nothing is quoted from.
type source struct {
	first      uint64
	id         string
	at         int // index of the block it belongs to; -1 before the first
	doc        string
	index      *int // of the document, if that is all that is known of it
	url, title string
	text       string
}

func newSource(part *chunk.Part, at int) source {
	doc := document(part.URL, part.Filename, part.Title)
	if doc == "\x00\x00" {
		doc += part.ID
	}
	s := source{first: part.First, id: part.ID, at: at, doc: doc, url: part.URL, title: cmp.Or(part.Title, part.Filename), text: part.Text}
	if part.URL == "" && part.Filename == "" {
		s.index = part.DocumentIndex
	}
	return s
}

// document is what tells a document apart: its URL, or without one its name.
func document(url, filename, title string) string {
	if url != "" {
		return url
	}
	return "\x00" + filename + "\x00" + title
}

// documents are the attachments that something can be quoted from. Each is listed once,
// and each text once in its document.
type documents struct {
	list  []Attachment
	at    map[string]int // where each is, by what tells it apart
	links []int          // those that the index of a citation counts
}

// given are the documents that the model was given.
func given(list []Attachment) documents {
	d := documents{at: map[string]int{}}
	for i, a := range list {
		key := document(a.URL, "", a.Title)
		if _, known := d.at[key]; !known {
			d.at[key] = i
		}
		d.list, d.links = append(d.list, a), append(d.links, i)
	}
	return d
}

func (d *documents) clone() documents {
	c := documents{slices.Clone(d.list), map[string]int{}, slices.Clone(d.links)}
	maps.Copy(c.at, d.at)
	for i := range c.list {
		c.list[i].CitedText = slices.Clone(c.list[i].CitedText)
	}
	return c
}

// place returns where the document of a source is, which is added if it is not known. An
// index counts what the model was given and the links that came before.
func (d *documents) place(s *source) int {
	if s.index != nil && *s.index >= 0 && *s.index < len(d.links) {
		return d.links[*s.index]
	}
	at, known := d.at[s.doc]
	if !known {
		at = len(d.list)
		d.at[s.doc] = at
		d.list = append(d.list, Attachment{URL: s.url, Title: s.title})
		if s.url != "" {
			d.links = append(d.links, at)
		}
	}
	return at
}

// quote is the place of a source's text among the attachments.
type quote struct{ doc, text int } // from 0; text is -1 for a link without a quotation

func (d *documents) quote(s *source) quote {
	q := quote{d.place(s), -1}
	if s.text == "" {
		return q
	}
	cited := &d.list[q.doc].CitedText
	if q.text = slices.Index(*cited, s.text); q.text < 0 {
		q.text = len(*cited)
		*cited = append(*cited, s.text)
	}
	return q
}

// cited returns the documents after these sources, and the place of each source. The
// documents that the model was given come first.
func (p *Projector) cited(sources []source) (documents, []quote) {
	d := p.given.clone()
	quotes := make([]quote, len(sources))
	for i := range sources {
		quotes[i] = d.quote(&sources[i])
	}
	return d, quotes
}

// attach returns the attachments of sources and files, and the place of each source.
func (p *Projector) attach(sources []source, files []Attachment) ([]Attachment, []quote) {
	if len(sources) == 0 {
		return slices.Clone(files), nil
	}
	d, quotes := p.cited(sources)
	return append(d.list, files...), quotes
}

// sameAttachments reports whether two lists are the same to a client.
func sameAttachments(a, b []Attachment) bool {
	return slices.EqualFunc(a, b, func(x, y Attachment) bool {
		return x.URL == y.URL && x.Title == y.Title && x.MediaType == y.MediaType && slices.Equal(x.CitedText, y.CitedText)
	})
}
