package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// attach compares the two ways to bring a reader to a finished answer of 20,000
// deltas.
func attach(runs int) error {
	c, err := start("spool")
	if err != nil {
		return err
	}
	defer c.stop()
	body, _ := json.Marshal(map[string]any{"id": "long", "message": map[string]any{
		"id": "u1", "role": "user", "parts": []any{map[string]string{"type": "text", "text": "bulk"}}}})
	res, err := http.Post("http://"+c.addr+"/api/chat/long", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("POST: %s", res.Status)
	}
	type side struct {
		frames, bytes int
		ms            []float64
	}
	var compact, deltas side
	var ratios []float64
	for range runs + 1 {
		a, err := get(c.addr, "", &compact.frames, &compact.bytes)
		if err != nil {
			return err
		}
		d, err := get(c.addr, "1", &deltas.frames, &deltas.bytes)
		if err != nil {
			return err
		}
		compact.ms, deltas.ms, ratios = append(compact.ms, a), append(deltas.ms, d), append(ratios, a/d)
	}
	fmt.Println("\n| attach to a finished answer | frames | bytes | ms |")
	fmt.Println("| --- | --- | --- | --- |")
	fmt.Printf("| replay, compacted | %d | %d | %.1f |\n", compact.frames, compact.bytes, median(compact.ms[1:]))
	fmt.Printf("| delta by delta | %d | %d | %.1f |\n", deltas.frames, deltas.bytes, median(deltas.ms[1:]))
	fmt.Printf("| ratio (range) | %.4f | %.2f | %s |\n", float64(compact.frames)/float64(deltas.frames),
		float64(compact.bytes)/float64(deltas.bytes), span(ratios[1:]))
	return nil
}

func get(addr, lastEventID string, frames, size *int) (float64, error) {
	req, err := http.NewRequest("GET", "http://"+addr+"/api/chat/long/stream", nil)
	if err != nil {
		return 0, err
	}
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	begun := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	took := time.Since(begun)
	if res.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("[DONE]")) {
		return 0, fmt.Errorf("GET with Last-Event-ID %q: %s, %d bytes without an end", lastEventID, res.Status, len(body))
	}
	*frames, *size = bytes.Count(body, []byte("data: ")), len(body)
	return float64(took.Microseconds()) / 1000, nil
}
