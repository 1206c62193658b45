// COUNT goroutines that sleep SECONDS seconds; says how many ended.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	seconds, _ := strconv.Atoi(os.Args[2])
	var group sync.WaitGroup
	group.Add(count)
	for i := 0; i < count; i++ {
		go func() {
			time.Sleep(time.Duration(seconds) * time.Second)
			group.Done()
		}()
	}
	group.Wait()
	fmt.Println(count, "slept")
}
