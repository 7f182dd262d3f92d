package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func deep(n int) int {
	var a [64]int
	if n == 0 {
		return a[0]
	}
	a[n%64] = n
	return deep(n-1) + a[n%64] - n + 1
}
func fault() (s string) {
	defer func() { s = fmt.Sprint(recover()) }()
	var p *[4]int
	return fmt.Sprint(p[1])
}
func main() {
	var group sync.WaitGroup
	var lock sync.Mutex
	sum := 0
	usr := make(chan os.Signal, 100)
	signal.Notify(usr, syscall.SIGUSR1, syscall.SIGURG)
	for i := 0; i < 200; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for j := 0; j < 20; j++ {
				n := deep(500) + native(j)
				lock.Lock()
				sum += n
				lock.Unlock()
				if j%7 == 0 {
					time.Sleep(2 * time.Millisecond)
				}
				runtime.Gosched()
			}
		}()
	}
	group.Wait()
	fmt.Println(sum, fault())
	for i := 0; i < 5; i++ {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		<-usr
	}
	out, err := exec.Command("echo", "child").Output()
	fmt.Println(string(out), err)
	runtime.GC()
}
