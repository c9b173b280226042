// Package web holds the built chat page.
package web

import (
	"embed"
	"io/fs"
)

//go:generate npm --prefix . run build

//go:embed all:ui/dist
var dist embed.FS

// FS returns the page's files, index.html at its root. Everything under assets
// has its content's hash in its name and never changes.
func FS() fs.FS {
	sub, err := fs.Sub(dist, "ui/dist")
	if err != nil {
		panic(err) // the path is constant and valid
	}
	return sub
}
