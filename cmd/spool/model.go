package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/model/replay"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server"
)

// namedModel is a provider's model that knows or finds out its name.
type namedModel interface {
	model.Model
	ID(ctx context.Context) (string, error)
}

// chooseModel takes the model that the flag names, or else what the environment
// offers, or else the scripted one.
func chooseModel(ctx context.Context, flag string, rate, replayRate float64, log *slog.Logger) (model.Model, server.Info, error) {
	env := os.Getenv
	kind, name, named := strings.Cut(flag, ":")
	if flag == "" {
		switch {
		case env("OPENAI_API_KEY") != "" || env("OPENAI_BASE_URL") != "":
			kind, name = "openai", env("OPENAI_MODEL")
		case env("ANTHROPIC_API_KEY") != "" || env("ANTHROPIC_BASE_URL") != "":
			kind, name = "anthropic", env("ANTHROPIC_MODEL")
		default:
			kind = "scripted"
		}
	} else if kind == "scripted" == named || kind != "scripted" && name == "" {
		kind = "" // with a name that it has not, or without one that it needs
	}
	var m namedModel
	switch kind {
	case "scripted":
		return scripted.New(&scripted.Options{Rate: rate}), server.Info{Model: "scripted", Demo: true}, nil
	case "replay":
		m, err := replay.New(name, &replay.Options{Rate: replayRate})
		return m, server.Info{Model: flag}, err
	case "openai":
		m = openai.New(&openai.Options{APIKey: env("OPENAI_API_KEY"), BaseURL: env("OPENAI_BASE_URL"), Model: name})
	case "openai-responses":
		o := openai.Options{APIKey: env("OPENAI_API_KEY"), BaseURL: env("OPENAI_BASE_URL")}
		var err error
		if o.Model, o.Background, err = responsesName(name); err != nil {
			return nil, server.Info{}, &usageError{"--model " + flag + ": " + err.Error()}
		}
		m = openai.NewResponses(&o)
	case "anthropic":
		m = anthropic.New(&anthropic.Options{APIKey: env("ANTHROPIC_API_KEY"), AuthToken: env("ANTHROPIC_AUTH_TOKEN"),
			BaseURL: env("ANTHROPIC_BASE_URL"), Model: name, Cache: "5m"})
	default:
		return nil, server.Info{}, &usageError{"--model " + flag + ": want scripted, openai:NAME, openai-responses:NAME, anthropic:NAME or replay:PATH"}
	}
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := m.ID(ask)
	if err != nil { // it may come up later
		log.Warn("the provider does not say which models it has", "err", err, "hint", "set "+strings.ToUpper(kind)+"_MODEL or --model "+kind+":NAME")
		return m, server.Info{Model: kind}, nil
	}
	return m, server.Info{Model: kind + ":" + id}, nil
}

// responsesName takes NAME?background=1 apart.
func responsesName(s string) (name string, background bool, err error) {
	name, options, _ := strings.Cut(s, "?")
	if name == "" {
		return "", false, errors.New("the model has no name")
	}
	values, err := url.ParseQuery(options)
	if v := values["background"]; err == nil && len(v) == 1 && len(values) == 1 {
		background, err = strconv.ParseBool(v[0])
	} else if len(values) > 0 {
		err = errors.New("another option")
	}
	if err != nil {
		return "", false, errors.New("what follows the name can be ?background=1 or ?background=0")
	}
	return name, background, nil
}
