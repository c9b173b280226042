package mcptool

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/tool"
)

// item is one piece of a result that is not all text. Bytes are not in it: they
// are files of the message.
type item struct {
	Type      string `json:"type"` // text, image, audio, resource or link
	Text      string `json:"text,omitempty"`
	URI       string `json:"uri,omitempty"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
	Bytes     int    `json:"bytes,omitempty"`
	Shown     bool   `json:"shown,omitempty"` // the user sees it
}

// result makes JSON of what a tool has returned: its structured content if there
// is any, one string if it is text, else a list. Images, sounds and other bytes
// become files of the message, links its sources.
func result(ctx tool.Context, res *mcp.CallToolResult) (json.RawMessage, error) {
	if res.NeedsInput() {
		return nil, errors.New("the tool asks for user input, which is not supported here")
	}
	if res.IsError {
		return nil, errors.New(errorText(res))
	}
	items := make([]item, 0, len(res.Content))
	var texts []string
	for i, c := range res.Content {
		it := itemOf(ctx, strconv.Itoa(i+1), c)
		if it.Type == "text" {
			texts = append(texts, it.Text)
		}
		items = append(items, it)
	}
	switch {
	case res.StructuredContent != nil:
		return json.Marshal(res.StructuredContent)
	case len(texts) == len(items):
		return json.Marshal(strings.Join(texts, "\n"))
	}
	return json.Marshal(items)
}

func errorText(res *mcp.CallToolResult) string {
	var texts []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok && t.Text != "" {
			texts = append(texts, t.Text)
		}
	}
	switch {
	case len(texts) > 0:
		return strings.Join(texts, "\n")
	case res.StructuredContent != nil:
		if raw, err := json.Marshal(res.StructuredContent); err == nil {
			return string(raw)
		}
	}
	return "the tool failed without an error message"
}

func itemOf(ctx tool.Context, id string, c mcp.Content) item {
	switch c := c.(type) {
	case *mcp.TextContent:
		return item{Type: "text", Text: c.Text}
	case *mcp.ImageContent:
		return fileItem(ctx, item{Type: "image", MediaType: c.MIMEType}, c.Data)
	case *mcp.AudioContent:
		return fileItem(ctx, item{Type: "audio", MediaType: c.MIMEType}, c.Data)
	case *mcp.ResourceLink:
		title := c.Title
		if title == "" {
			title = c.Name
		}
		err := ctx.Cite(id, c.URI, title, c.MIMEType)
		return item{Type: "link", URI: c.URI, Name: c.Name, Text: c.Description, MediaType: c.MIMEType, Shown: err == nil}
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			break
		}
		it := item{Type: "resource", URI: c.Resource.URI, MediaType: c.Resource.MIMEType, Text: c.Resource.Text}
		if c.Resource.Text == "" && len(c.Resource.Blob) > 0 {
			return fileItem(ctx, it, c.Resource.Blob)
		}
		return it
	}
	return item{Type: "text", Text: fmt.Sprintf("(content of a kind that is not known here: %T)", c)}
}

// fileItem shows bytes as a file of the message. What is too large for the log
// is only named.
func fileItem(ctx tool.Context, it item, data []byte) item {
	media := it.MediaType
	if media == "" {
		media = "application/octet-stream"
	}
	name := it.URI[strings.LastIndexByte(it.URI, '/')+1:]
	it.Bytes = len(data)
	it.Shown = ctx.File("data:"+media+";base64,"+base64.StdEncoding.EncodeToString(data), media, name) == nil
	return it
}
