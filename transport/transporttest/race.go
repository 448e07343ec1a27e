//go:build race

package transporttest

const raceDetector = true
