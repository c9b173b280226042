package cli

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wait"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/tool"
)

// demoAgent is the agent that answers without a provider: its tools show
// progress, events and state, always with the same results. At a rate of 0 they
// do not pause either.
func demoAgent(m model.Model, rate float64, limits demoLimits) *agent.Agent {
	d := demoTools{}
	if rate > 0 {
		d.pause = time.Duration(float64(12*time.Second) / rate) // as long as twelve deltas
	}
	getWeather := tool.With(tool.New("get_weather", "The weather of the coming days in a city.", d.getWeather), again)
	searchNotes := tool.With(tool.New("search_notes", "Searches the user's notes.", d.searchNotes), again)
	bookTrip := tool.With(tool.New("book_trip", "Books a planned trip. The user is asked before.", d.bookTrip),
		tool.Options{Approval: true, Recovery: tool.RecoverRetry})
	researcher := &agent.Agent{
		Name:         "researcher",
		Instructions: "You are a researcher. Do what you are told with the tools that you have, and report in one or two sentences.",
		Model:        m,
		Tools:        []tool.Tool{getWeather, searchNotes, bookTrip},
		WaitLimit:    limits.wait,
		MaxAnswer:    limits.answer,
	}
	return &agent.Agent{
		Name: demoName,
		Instructions: "You are the demo agent of Spool, a server for resumable AI-agent streams. " +
			"Answer briefly, in Markdown. You can look up the weather, search the user's notes and plan a trip, and have researchers work on several questions at once; use the tools when they help.",
		Model:     m,
		WaitLimit: limits.wait,
		MaxAnswer: limits.answer,
		Tools: []tool.Tool{
			getWeather,
			searchNotes,
			tool.With(tool.New("plan_trip", "Plans a trip and adds it to the itinerary.", d.planTrip), again),
			bookTrip,
			tool.Client[struct{}]("get_location", "Where the user is, as their browser knows it."),
			agent.SubAgent(researcher, agent.SubAgentOptions{Description: "Has a researcher work on one question and report. Ask several in one answer to have them work at the same time."}),
		},
	}
}

// demoLimits are the limits of the demo's agents, as in [agent.Agent].
type demoLimits struct {
	wait   time.Duration
	answer int
}

// again: the demo's tools have no side effects, so a lost call can be made again.
var again = tool.Options{Recovery: tool.RecoverRetry}

// demoTools are the demo's tools. Their results depend on their input alone.
type demoTools struct{ pause time.Duration }

type weatherQuery struct {
	City string `json:"city" jsonschema:"name of the city"`
}

type weather struct {
	City        string `json:"city"`
	Sky         string `json:"sky"`
	Temperature int    `json:"temperatureC"`
	Rain        int    `json:"rainPercent"`
}

func (d demoTools) getWeather(ctx tool.Context, in weatherQuery) (weather, error) {
	n := number(in.City)
	skies := []string{"sunny", "clear", "a few clouds", "windy"}
	w := weather{City: in.City, Sky: skies[n%len(skies)], Temperature: 17 + n%11, Rain: 5 * (n % 7)}
	if err := d.progress(ctx, "finding "+in.City, "asking the weather station", "reading the forecast"); err != nil {
		return weather{}, err
	}
	return w, ctx.Emit("weather", w, &tool.EmitOptions{ID: in.City})
}

type noteQuery struct {
	Query string `json:"query" jsonschema:"what to look for"`
}

type note struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

func (d demoTools) searchNotes(ctx tool.Context, in noteQuery) ([]note, error) {
	if err := d.progress(ctx, "opening the notes", "searching 1,204 notes", "ranking"); err != nil {
		return nil, err
	}
	found := []note{
		{"Packing", "Good shoes and one warm layer; leave room for a book."},
		{"About " + strings.ToLower(in.Query), "Go early, stay late, eat where there is a queue."},
	}
	return found, ctx.Emit("notes-found", map[string]any{"query": in.Query, "count": len(found)}, nil)
}

type tripQuery struct {
	City string `json:"city" jsonschema:"where to go"`
	Days int    `json:"days" jsonschema:"for how many days, 1 to 14"`
}

type day struct {
	Day  int    `json:"day"`
	Plan string `json:"plan"`
}

type trip struct {
	City string `json:"city"`
	Days []day  `json:"days"`
}

// demoState is the demo's custom state.
type demoState struct {
	Itinerary []trip `json:"itinerary,omitempty"`
}

func (d demoTools) planTrip(ctx tool.Context, in tripQuery) (trip, error) {
	if in.Days < 1 || in.Days > 14 {
		return trip{}, fmt.Errorf("a trip must have 1 to 14 days, not %d", in.Days)
	}
	plans := []string{"the old town on foot", "the river and the museums", "a train to the hills", "the market, then nothing at all"}
	t := trip{City: in.City}
	for i := range in.Days {
		t.Days = append(t.Days, day{i + 1, plans[(number(in.City)+i)%len(plans)]})
	}
	if err := d.progress(ctx, "choosing places", "ordering the days", "checking the trains"); err != nil {
		return trip{}, err
	}
	if err := ctx.Emit("trip-planned", map[string]any{"city": in.City, "days": in.Days}, nil); err != nil {
		return trip{}, err
	}
	return t, tool.UpdateState(ctx, func(s *demoState) error {
		s.Itinerary = append(s.Itinerary, t)
		return nil
	})
}

type booking struct {
	Code string `json:"code"`
	City string `json:"city"`
	Days int    `json:"days"`
}

func (d demoTools) bookTrip(ctx tool.Context, in tripQuery) (booking, error) {
	if err := d.progress(ctx, "holding the seats", "paying", "getting the tickets"); err != nil {
		return booking{}, err
	}
	return booking{fmt.Sprintf("SP-%03d", number(in.City)%1000), in.City, in.Days}, nil
}

// progress reports the steps one after the other, in one progress bar.
func (d demoTools) progress(ctx tool.Context, steps ...string) error {
	for i, label := range steps {
		percent := float64(100 * i / len(steps))
		if err := ctx.Progress(tool.Progress{Label: label, Percent: &percent}); err != nil {
			return err
		}
		if err := d.wait(ctx); err != nil {
			return err
		}
	}
	all := 100.0
	return ctx.Progress(tool.Progress{Label: steps[len(steps)-1], State: "done", Percent: &all})
}

func (d demoTools) wait(ctx tool.Context) error {
	if d.pause == 0 {
		return ctx.Err()
	}
	return wait.Sleep(ctx, d.pause)
}

// number returns a small number that depends on the text alone.
func number(text string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.ToLower(text)))
	return int(h.Sum32() % 1009)
}
