// Package flock holds a file for as long as this process lives: the system lets go of it, however the process ends.
//
// Where the system or the file system has no such locks, everybody may take every file, and none is ever taken.
package flock
