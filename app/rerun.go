package app

type rerunVerb struct{}
