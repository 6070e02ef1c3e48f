// Package planted switches deliberate bugs on, so that the crash tests can be tested: a
// bug that no tier finds fails the run. The package is empty without the build tag planted.
// The calls of it are patched into the sources for that build only (see
// crashtest.PlantedBugs), so no other build has them. The environment variable TGAD_PLANTED
// chooses the bug.
package planted
