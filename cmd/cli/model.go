package cli

import (
	"context"
	"errors"
	"fmt"
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

// namedModel is a provider's model that knows its name or can ask for it.
type namedModel interface {
	model.Model
	ID(ctx context.Context) (string, error)
}

// chooseModel takes the model that the flag names, or else one from the environment, or
// else the scripted model.
func chooseModel(ctx context.Context, flag string, rate, replayRate float64, log *slog.Logger) (model.Model, server.Info, error) {
	env := os.Getenv
	kind, name := modelOf(flag, env)
	var m namedModel
	switch kind {
	case "scripted":
		_, background, err := backgroundOption(name, true)
		if err != nil {
			return nil, server.Info{}, &usageError{"--model " + flag + ": " + err.Error()}
		}
		return scripted.New(&scripted.Options{Rate: rate, Background: background}), server.Info{Model: "scripted", Demo: true}, nil
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
		return nil, server.Info{}, wrong("--model", flag, "scripted, openai:NAME, openai-responses:NAME, anthropic:NAME or replay:PATH")
	}
	if err := checkProvider(flag, kind, env); err != nil {
		return nil, server.Info{}, err
	}
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := m.ID(ask)
	if err != nil { // the provider may be reachable later
		log.Warn("the provider's model list cannot be loaded", "err", err, "hint", fmt.Sprintf("check %[1]s_API_KEY and %[1]s_BASE_URL, or name a model: --model %[2]s:NAME", strings.ToUpper(kind), kind))
		return m, server.Info{Model: kind}, nil
	}
	return m, server.Info{Model: kind + ":" + id}, nil
}

// modelOf returns the kind and the name of the model that the flag names, or else of the
// one that the environment does. The kind is "" if the flag is wrong.
func modelOf(flag string, env func(string) string) (kind, name string) {
	kind, name, named := strings.Cut(flag, ":")
	word, options, _ := strings.Cut(flag, "?")
	switch {
	case flag == "" && (env("OPENAI_API_KEY") != "" || env("OPENAI_BASE_URL") != ""):
		return "openai", env("OPENAI_MODEL")
	case flag == "" && (env("ANTHROPIC_API_KEY") != "" || env("ANTHROPIC_BASE_URL") != ""):
		return "anthropic", env("ANTHROPIC_MODEL")
	case flag == "" || word == "scripted":
		return "scripted", "?" + options
	case kind == "scripted" || !named || name == "":
		return "", "" // it has a name but takes none, or lacks one that it needs
	}
	return kind, name
}

// checkProvider checks the environment variables of a model's provider.
func checkProvider(flag, kind string, env func(string) string) error {
	name, _, _ := strings.Cut(strings.ToUpper(kind), "-")
	if name != "OPENAI" && name != "ANTHROPIC" {
		return nil
	}
	if base := env(name + "_BASE_URL"); base != "" {
		if !webAddress(base) {
			return wrong(name+"_BASE_URL", base, "an address like http://127.0.0.1:11434/v1")
		}
		return nil // many self-hosted servers need no key
	}
	if env(name+"_API_KEY") == "" && (name == "OPENAI" || env(name+"_AUTH_TOKEN") == "") {
		return &usageError{fmt.Sprintf("--model %s: %s_API_KEY is not set (if your server needs no key, set %s_BASE_URL)", flag, name, name)}
	}
	return nil
}

// responsesName parses the name of a model of the Responses API, and its option.
func responsesName(s string) (name string, background bool, err error) {
	name, background, err = backgroundOption(s, false)
	if err == nil && name == "" {
		err = errors.New("the model has no name")
	}
	return name, background, err
}

// backgroundOption parses NAME?background=1. Without an option it is as by default.
func backgroundOption(s string, byDefault bool) (name string, background bool, err error) {
	name, options, _ := strings.Cut(s, "?")
	values, err := url.ParseQuery(options)
	if v := values["background"]; err == nil && len(v) == 1 && len(values) == 1 {
		byDefault, err = strconv.ParseBool(v[0])
	} else if len(values) > 0 {
		err = errors.New("unknown option")
	}
	if err != nil {
		return "", false, errors.New("after the name, only ?background=1 or ?background=0 is allowed")
	}
	return name, byDefault, nil
}
