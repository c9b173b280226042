package aisdk

import (
	"github.com/spool-run/spool/chunk"
)

// DefaultLimit is the size of a page that does not say its own.
const DefaultLimit = 50

// UIPage is a page of a history.
type UIPage struct {
	Messages []UIMessage `json:"messages"`
	HasMore  bool        `json:"hasMore"`
}

// CorePage is a page of a history in the core format.
type CorePage struct {
	Messages []CoreMessage `json:"messages"`
	HasMore  bool          `json:"hasMore"`
}

// LoadUIMessages converts the messages from offset on, at most limit of them.
// A limit of 0 is [DefaultLimit]; a negative one is none.
func LoadUIMessages(messages []chunk.Message, offset, limit int, o *ConvertOptions) UIPage {
	from, to := page(len(messages), offset, limit)
	return UIPage{Messages: convertFrom(messages[from:to], from, o), HasMore: to < len(messages)}
}

// LoadCoreUIMessages is [LoadUIMessages] in the core format.
func LoadCoreUIMessages(messages []chunk.Message, offset, limit int, o *ConvertOptions) CorePage {
	from, to := page(len(messages), offset, limit)
	return CorePage{Messages: coreFrom(messages[from:to], from, o), HasMore: to < len(messages)}
}

func page(n, offset, limit int) (from, to int) {
	from = min(max(offset, 0), n)
	switch {
	case limit == 0:
		limit = DefaultLimit
	case limit < 0:
		limit = n
	}
	return from, from + min(limit, n-from)
}
