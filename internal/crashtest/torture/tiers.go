package main

import (
	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/crashtest/machine"
	"github.com/tgad/tgad/internal/crashtest/proc"
)

// tiers are all there are, in the order in which they run.
var tiers = append([]crashtest.Tier{
	{Name: "mem", Share: 5, Run: crashtest.Mem},
	{Name: "rapid", Share: 2, Run: machine.Tier},
	{Name: "corrupt", Share: 2, Run: crashtest.Corrupted},
	{Name: "planted", Share: 2, Run: crashtest.Planted},
	{Name: "kill", Share: 1, Run: crashtest.Kill},
}, proc.Tiers()...)
