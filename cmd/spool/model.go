package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server"
)

// chooseModel takes the model that the flag names, or else what the environment
// offers, or else the scripted one.
func chooseModel(ctx context.Context, flag string, rate float64, log *slog.Logger) (model.Model, server.Info, error) {
	key, base, name := os.Getenv("OPENAI_API_KEY"), os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_MODEL")
	switch {
	case flag == "" && key == "" && base == "", flag == "scripted":
		m := scripted.New(&scripted.Options{Rate: rate})
		return m, server.Info{Model: "scripted", Demo: true}, nil
	case flag == "":
	case strings.HasPrefix(flag, "openai:") && len(flag) > len("openai:"):
		name = strings.TrimPrefix(flag, "openai:")
	default:
		return nil, server.Info{}, &usageError{"--model " + flag + ": want scripted or openai:NAME"}
	}
	m := openai.New(&openai.Options{APIKey: key, BaseURL: base, Model: name})
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := m.ID(ask)
	if err != nil { // it may come up later
		log.Warn("the provider does not say which models it has", "err", err, "hint", "set OPENAI_MODEL or --model openai:NAME")
		return m, server.Info{Model: "openai"}, nil
	}
	return m, server.Info{Model: "openai:" + id}, nil
}
