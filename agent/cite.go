package agent

import (
	"context"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
)

// cite appends a source. One that only counts the documents of the request becomes that
// of the user's file, since nobody who reads the log knows the request.
func (t *transcript) cite(ctx context.Context, p model.Source) error {
	// Its id is unique in the answer only; a message may hold several.
	c := &chunk.Citation{SourceID: t.step.id + "-" + p.ID, URL: p.URL, Title: p.Title,
		MediaType: p.MediaType, Filename: p.Filename, CitedText: p.CitedText, DocumentIndex: p.Document}
	if c.DocumentIndex != nil && c.URL == "" {
		err := t.step.run.Log.View(ctx, func(f *fold.Fold) error {
			if doc := document(f.Messages, *c.DocumentIndex); doc != nil {
				fromFile(c, doc)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return t.append(ctx, c)
}

// document returns the document at an index: of the users' files, those that are not
// pictures, sound or video. It returns nil if there are fewer.
func document(messages []*chunk.Message, index int) *chunk.Part {
	for _, m := range messages {
		if m.Role != chunk.RoleUser {
			continue
		}
		for i := range m.Parts {
			p := &m.Parts[i]
			if p.Type != chunk.PartFile {
				continue
			}
			switch kind, _, _ := strings.Cut(p.MediaType, "/"); kind {
			case "image", "audio", "video":
				continue
			}
			if index == 0 {
				return p
			}
			index--
		}
	}
	return nil
}

// fromFile makes a citation one of a file. A data URL is not repeated.
func fromFile(c *chunk.Citation, file *chunk.Part) {
	if len(file.Large) == 0 && !strings.HasPrefix(file.URL, "data:") {
		c.URL = file.URL
	}
	c.MediaType = file.MediaType
	if file.Filename != "" {
		c.Title, c.Filename = file.Filename, file.Filename
	}
}
