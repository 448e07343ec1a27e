package app

type exportVerb struct{}
