package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// message is a stored message.
type message struct {
	seq    uint64
	header nats.Header
	data   []byte
}

// codeNoMessage is the server's number for that. A stream that is missing has another one.
const codeNoMessage = 10037

// errNoMessage says that there is no such message.
var errNoMessage = errors.New("no message")

// api calls the leader of a stream.
func (s *Store) api(ctx context.Context, call string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	m, err := s.request(ctx, "$JS.API."+call, body)
	if err != nil {
		return err
	}
	var failure struct {
		Error *struct {
			Code        int    `json:"code"`
			Number      int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failure); err != nil {
		return err
	}
	if e := failure.Error; e != nil {
		if e.Number == codeNoMessage {
			return fmt.Errorf("%w: %s", errNoMessage, e.Description)
		}
		return fmt.Errorf("%s: %s (%d)", call, e.Description, e.Code)
	}
	return json.Unmarshal(m.Data, answer)
}

// request asks again while there is no connection or no leader: what it asks for may happen
// twice.
func (s *Store) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	for {
		m, err := s.requestOnce(ctx, subject, body)
		if err == nil || ctx.Err() != nil || s.ctx.Err() != nil {
			return m, err
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return nil, err
		}
	}
}

func (s *Store) requestOnce(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	ctx, cancel := s.link.attempt(ctx)
	defer cancel()
	return s.nc.RequestWithContext(ctx, subject, body)
}

// query names a message.
type query struct {
	Seq      uint64 `json:"seq,omitempty"`
	Last     string `json:"last_by_subj,omitempty"`
	Next     string `json:"next_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// get asks the stream's leader for a message. Other replicas may be behind.
func (s *Store) get(ctx context.Context, stream string, q query) (message, error) {
	var answer struct {
		Message struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
	}
	if err := s.api(ctx, "STREAM.MSG.GET."+stream, q, &answer); err != nil {
		return message{}, err
	}
	m := message{seq: answer.Message.Seq, data: answer.Message.Data, header: nats.Header{}}
	if len(answer.Message.Header) > 0 {
		var err error
		if m.header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return message{}, err
		}
	}
	s.history.see(m.seq, stream == s.log)
	return m, nil
}

// batch asks any replica for messages from a sequence on, and calls each with them until it
// returns false. A replica that is behind has fewer.
func (s *Store) batch(ctx context.Context, stream string, q query, each func(message) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	inbox := s.nc.NewRespInbox()
	sub, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	attempt, cancel := s.link.attempt(ctx)
	defer cancel()
	if err := s.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return err
	}
	for {
		m, err := sub.NextMsgWithContext(attempt)
		if err != nil && ctx.Err() == nil && attempt.Err() != nil {
			return nil // the rest does not come any more
		}
		if err != nil {
			return err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404":
			return nil
		default:
			return fmt.Errorf("reading a stream: %s %s", status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return err
		}
		if more, err := each(message{seq: seq, header: m.Header, data: m.Data}); err != nil || !more {
			return err
		}
	}
}

// purge removes the messages of a subject up to and with a sequence.
func (s *Store) purge(ctx context.Context, stream, subject string, through uint64) error {
	var answer struct {
		Success bool `json:"success"`
	}
	return s.api(ctx, "STREAM.PURGE."+stream, map[string]any{"filter": subject, "seq": through + 1}, &answer)
}

// info is what is known of a stream.
type info struct {
	Created time.Time `json:"created"`
	Now     time.Time `json:"ts"`
	State   struct {
		Last uint64 `json:"last_seq"`
	} `json:"state"`
}

func (s *Store) info(ctx context.Context) (i info, sent time.Time, err error) {
	sent = time.Now()
	err = s.api(ctx, "STREAM.INFO."+s.log, nil, &i)
	return i, sent, err
}

// sequence returns the sequence of a message that a stream has published again.
func sequence(m *nats.Msg) (uint64, bool) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	return seq, err == nil
}
