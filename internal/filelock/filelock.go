// Package filelock has locks of files that end with their processes.
package filelock
