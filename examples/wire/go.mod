module example.com/lines

go 1.26.0

require github.com/spool-run/spool v0.0.0

replace github.com/spool-run/spool => ../..
