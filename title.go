package spool

import (
	"context"
	"errors"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// NewTitle returns the title for a session whose first user message this is, see
// [fold.Title]. It returns "" if the session has a title already: a title that was
// given stays.
func (g *Log) NewTitle(ctx context.Context, first *chunk.Message) (string, error) {
	title := fold.Title(first)
	lister, ok := g.logs.store.(Lister)
	if title == "" || !ok {
		return title, nil
	}
	info, err := lister.Session(ctx, g.session)
	if err != nil && !errors.Is(err, ErrNotFound) || info.Title != "" {
		return "", err
	}
	return title, nil
}
