module github.com/tgad/tgad/packaging

go 1.26.0
