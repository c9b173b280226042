.PHONY: serve test test-nodes bench fuzz chaos screenshots web lint deps release clean

# The server. The first build takes a minute or two, and says so.
serve:
	scripts/serve $(ARGS)

# All checks but those of test-nodes; CI runs both. Needs Go and Node; installs the rest.
test:
	scripts/test

# The tests with several processes on one store, and those of stores whose servers they start:
# Redis, Postgres. At most 20 minutes.
test-nodes:
	scripts/nodes

# The checks that need no run: formats, vet, staticcheck, types.
lint: deps
	scripts/lint

# The page, built from its source. Commit what it changes.
web: deps
	cd web && npm run build

# Pictures of the page for docs/img.
screenshots: deps
	cd web/conformance && node browser/screenshots.mjs && node browser/recovery.mjs

# Each fuzz target for a minute.
fuzz:
	scripts/fuzz 60s

# The long ones: every kill, soaks of two and of five minutes, a hundred runs on the nodes of
# each store, an hour of simulations, a hundred cuts in a browser.
chaos: deps
	SPOOL_CHAOS=1 go test -count=1 -timeout 2h -run 'TestKill9|TestOutageAtEveryAppend|TestRewindAtEveryRecord|TestRecoveredRunsOnTheWire|TestProvider|TestReattach' ./runner
	SPOOL_CHAOS=1 go test -race -count=1 -timeout 15m -run TestRunsSoak ./runner
	SPOOL_SEEDS=1h go test -count=1 -timeout 2h -run TestSimulation ./sim
	SPOOL_NODES=5m go test -race -tags nodes -count=1 -timeout 1h -v -run 'TestNodes$$' ./cmd/cli
	SPOOL_SOAK=5m go test -race -count=1 -timeout 30m -run TestSoak ./cmd/cli
	cd web/conformance && SPOOL_ROUNDS=20 SPOOL_EVERY=1 node --test kill9.test.mjs partial.test.mjs
	cd web/conformance && for n in $$(seq 34); do node --test --test-name-pattern=mid-answer browser/page.test.mjs || exit 1; done

# The figures of docs/performance.md: stores against their bare engines, then
# client and server in separate processes against a bare handler.
bench:
	scripts/servers
	go test -tags nodes -run '^$$' -bench . -benchmem . ./store/... ./wire/... ./internal/sse ./internal/jsonenc ./runner ./server
	cd bench && go run .

# Static binaries for each platform, with checksums, in dist/. VERSION names them;
# by default that of git.
release:
	scripts/release $(VERSION)

# What the other targets need beyond Go and Node.
deps:
	scripts/deps

clean:
	rm -rf dist web/node_modules web/conformance/clients/node_modules web/client/dist web/react/dist web/server/dist web/package/dist
