module github.com/spool-run/spool

go 1.26
