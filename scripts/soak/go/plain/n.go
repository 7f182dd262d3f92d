package main

func native(n int) int { return n }
