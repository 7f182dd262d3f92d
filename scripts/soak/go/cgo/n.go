package main

// int native(int);
import "C"

//export back
func back(n C.int) C.int {
	if fault() == "" {
		return 0
	}
	return C.int(deep(300)) - 300 + n
}
func native(n int) int { return int(C.native(C.int(n))) }
