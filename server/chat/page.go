package chat

import "github.com/spool-run/spool/chunk"

// CheckPage checks a page's offset and limit.
func CheckPage(offset, limit int) error {
	if offset < 0 || limit < 0 {
		return chunk.ErrInvalid.Because("offset and limit must be 0 or more")
	}
	return nil
}

// PageOf returns where a page begins and ends in a list. A limit is 50 if it is 0,
// and at most 1000.
func PageOf(total, offset, limit int) (from, to int) {
	if limit == 0 {
		limit = 50
	}
	from = min(offset, total)
	return from, min(from+min(limit, 1000), total)
}
