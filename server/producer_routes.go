package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/stream"
)

// Headers of a producer's appends.
const (
	HeaderProducerEpoch = "Producer-Epoch"
	HeaderProducerSeq   = "Producer-Seq"
)

// produce lets an external producer claim a session (?claim) or append to its run.
func (s *Server) produce(w http.ResponseWriter, r *request) error {
	data, err := s.body(w, r, otherBody)
	if err != nil {
		return err
	}
	w.Header().Set(frontend.HeaderSession, r.session)
	if r.asks("claim") {
		q := r.URL.Query()
		run, err := s.external.Claim(r.Context(), r.session, stream.ExternalClaim{
			Row:       spool.Row{Agent: s.o.Chat.Agent, Principal: r.owner},
			AgentType: q.Get("agent"),
			CommandID: q.Get("commandId"),
		})
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, struct {
			stream.ExternalRun
			TTL int64 `json:"ttl"` // milliseconds without an append after which the claim expires
		}{run, run.TTL.Milliseconds()})
		return nil
	}
	epoch, err := strconv.ParseUint(r.Header.Get(HeaderProducerEpoch), 10, 64)
	if err != nil || epoch == 0 {
		return chunk.ErrInvalid.Because("an append needs the header Producer-Epoch, from POST ?claim")
	}
	seq, err := strconv.ParseUint(r.Header.Get(HeaderProducerSeq), 10, 64)
	if err != nil {
		return chunk.ErrInvalid.Because("an append needs the header Producer-Seq: the number of chunks appended under this claim so far")
	}
	chunks, err := parseChunks(data)
	if err != nil {
		return err
	}
	res, err := s.external.Append(r.Context(), r.session, epoch, seq, chunks)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		First uint64 `json:"first"`
		Last  uint64 `json:"last"`
	}{res.First, res.Last})
	return nil
}

// parseChunks reads one chunk, a JSON array of them, or JSON lines.
func parseChunks(data []byte) ([]chunk.Chunk, error) {
	if chunks, plain := stream.ParseDeltas(data); plain {
		return chunks, nil
	}
	var chunks []chunk.Chunk
	take := func(one []byte) error {
		if len(chunks) == spool.MaxAppendRecords {
			return chunk.ErrTooLarge.Because("an append has at most 1000 chunks")
		}
		c, err := stream.ParseProducerChunk(one)
		chunks = append(chunks, c)
		return err
	}
	if t := bytes.TrimSpace(data); len(t) > 0 && t[0] == '[' {
		if err := json.Unmarshal(t, new(json.RawMessage)); err != nil {
			return nil, errMalformed.With("", err)
		}
		for one := range jsonenc.Elements(t) {
			if err := take(one); err != nil {
				return nil, err
			}
		}
		return chunks, nil
	}
	for d := json.NewDecoder(bytes.NewReader(data)); d.More(); {
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return nil, errMalformed.With("", err)
		}
		if err := take(one); err != nil {
			return nil, err
		}
	}
	return chunks, nil
}
