// Package planted switches deliberate bugs on, so that the crash tests can be tested: a
// bug that no tier finds fails the run. It has content under the build tag planted
// alone, and what calls it is written into the sources by that build (see
// crashtest.PlantedBugs): no other build has a hook. There the environment variable
// TGAD_PLANTED chooses the bug.
package planted
