// A producer and worker in Go, with Apache Thrift's library and the code that its compiler makes of pinlater.thrift.
//
//	go run . 127.0.0.1:9010
//
// Walks once through the life of a job and prints each step. Keep the parts that your program needs.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"pinlater-example/pinlater"
)

const queue = "pictures"

// Names this process: the server shows it as the holder of a job.
var me = &pinlater.RequestContext{Source: "go-example"}

func main() {
	log.SetFlags(0)
	address := "127.0.0.1:9010"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	client, closeIt, err := connect(address)
	if err == nil {
		defer closeIt()
		err = walk(context.Background(), client)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Calls on one connection are answered in order: a program that also does other things gives its long polls a connection of
// their own. One client may be used by one goroutine at a time.
func connect(address string) (*pinlater.PinLaterClient, func() error, error) {
	settings := &thrift.TConfiguration{
		ConnectTimeout: 5 * time.Second,
		SocketTimeout:  30 * time.Second, // longer than the longest waitMillis
		MaxFrameSize:   16 << 20,         // the server's default; the library's is a little less
	}
	transport := thrift.NewTFramedTransportConf(thrift.NewTSocketConf(address, settings), settings)
	if err := transport.Open(); err != nil {
		return nil, nil, err
	}
	protocol := thrift.NewTBinaryProtocolConf(transport, settings)
	return pinlater.NewPinLaterClient(thrift.NewTStandardClient(protocol, protocol)), transport.Close, nil
}

func walk(ctx context.Context, client *pinlater.PinLaterClient) error {
	if err := client.CreateQueue(ctx, me, queue); err != nil {
		return err
	}
	if err := cleanUp(ctx, client); err != nil {
		return err
	}
	jobs, err := enqueue(ctx, client)
	if err != nil {
		return err
	}
	if err := look(ctx, client, jobs); err != nil {
		return err
	}
	if err := work(ctx, client); err != nil {
		return err
	}
	if err := lookAgain(ctx, client, jobs); err != nil {
		return err
	}
	return beRefused(ctx, client)
}

// Deletes the jobs of an earlier run, so that each run prints the same.
func cleanUp(ctx context.Context, client *pinlater.PinLaterClient) error {
	for _, state := range []pinlater.PinLaterJobState{pinlater.PinLaterJobState_PENDING, pinlater.PinLaterJobState_FAILED} {
		for priority := int8(1); priority <= 3; priority++ {
			request := pinlater.NewPinLaterDeleteJobsRequest()
			request.QueueName, request.JobState, request.Priority = queue, state, priority
			if _, err := client.DeleteJobs(ctx, me, request); err != nil {
				return err
			}
		}
	}
	return nil
}

// Structs with defaults are made by their New functions: a literal has zeros, and 0 attempts are refused.
func newJob(body string, priority int8) *pinlater.PinLaterJob {
	job := pinlater.NewPinLaterJob()
	job.Body, job.Priority = []byte(body), priority
	return job
}

func enqueue(ctx context.Context, client *pinlater.PinLaterClient) ([]string, error) {
	now := time.Now().UnixMilli()
	run := fmt.Sprintf("%d-%d", os.Getpid(), now)
	one := newJob("one\x00\xff", 1) // any bytes
	one.RunAfterTimestampMillis = thrift.Int64Ptr(now)
	one.NumAttemptsAllowed = 5
	one.CustomStatus = "queued"
	one.Headers = map[string]string{"content-type": "application/octet-stream", "pinlater-task": "resize"}
	one.UniqueKey = thrift.StringPtr("picture-" + run)
	one.UniqueScope = pinlater.UniqueScope_TIME
	one.UniqueForMillis = thrift.Int64Ptr(60_000)
	one.ClaimTimeoutMillis = thrift.Int64Ptr(120_000)
	one.ExpiresAtMillis = thrift.Int64Ptr(now + 3_600_000)

	three := newJob("three", 3)
	three.NumAttemptsAllowed = 3

	request := pinlater.NewPinLaterEnqueueRequest()
	request.QueueName = queue
	request.Jobs = []*pinlater.PinLaterJob{one, newJob("two", 2), three}
	request.RequestKey = thrift.StringPtr(run)
	stored, err := client.EnqueueJobs(ctx, me, request)
	if err != nil {
		return nil, err
	}
	fmt.Println("jobs", strings.Join(stored.JobDescriptors, " "))

	// What to do when the answer was lost: the same request once more, marked as a repeat. Nothing is stored twice.
	request.Repeated = thrift.BoolPtr(true)
	again, err := client.EnqueueJobs(ctx, me, request)
	if err != nil {
		return nil, err
	}
	fmt.Println("repeated: the same jobs:", strings.Join(again.JobDescriptors, " ") == strings.Join(stored.JobDescriptors, " "))

	rival := pinlater.NewPinLaterEnqueueRequest()
	rival.QueueName = queue
	rival.Jobs = []*pinlater.PinLaterJob{newJob("one again", 1)}
	rival.Jobs[0].UniqueKey = one.UniqueKey
	taken, err := client.EnqueueJobs(ctx, me, rival)
	if err != nil {
		return nil, err
	}
	fmt.Println("unique key taken: index", taken.Existing[0], "is job one:", taken.JobDescriptors[0] == stored.JobDescriptors[0])
	return stored.JobDescriptors, nil
}

func look(ctx context.Context, client *pinlater.PinLaterClient, jobs []string) error {
	waiting, err := count(ctx, client, pinlater.PinLaterJobState_PENDING, false)
	if err != nil {
		return err
	}
	fmt.Println("waiting:", waiting)

	request := pinlater.NewPinLaterScanJobsRequest()
	request.QueueName, request.JobState, request.Limit = queue, pinlater.PinLaterJobState_PENDING, 2
	request.Paged, request.IncludeBody = thrift.BoolPtr(true), thrift.BoolPtr(true)
	bodies := map[string]string{}
	for page := 1; ; page++ {
		found, err := client.ScanJobs(ctx, me, request)
		if err != nil {
			return err
		}
		for _, job := range found.ScannedJobs {
			bodies[job.JobDescriptor] = fmt.Sprintf("%x", job.Body)
		}
		if found.Continuation == pinlater.CONTINUATION_END {
			fmt.Println("scanned:", len(bodies), "jobs in", page, "pages, bodies", bodies[jobs[0]], bodies[jobs[1]], bodies[jobs[2]])
			return nil
		}
		request.Continuation = found.Continuation
	}
}

func count(ctx context.Context, client *pinlater.PinLaterClient, state pinlater.PinLaterJobState, future bool) (int32, error) {
	request := pinlater.NewPinLaterGetJobCountRequest()
	request.QueueName, request.JobState, request.CountFutureJobs = queue, state, future
	return client.GetJobCount(ctx, me, request)
}

// Asks for jobs, waits up to two seconds for one, and takes along what has been done since the last time.
func claim(ctx context.Context, client *pinlater.PinLaterClient, acks *pinlater.PinLaterJobAckRequest) (*pinlater.PinLaterDequeueResponse, error) {
	request := pinlater.NewPinLaterDequeueRequest()
	request.QueueName, request.Limit, request.JobAckRequest = queue, 10, acks
	request.WaitMillis = thrift.Int32Ptr(2_000)
	return client.DequeueJobs(ctx, me, request)
}

func work(ctx context.Context, client *pinlater.PinLaterClient) error {
	claimed, err := claim(ctx, client, nil)
	if err != nil {
		return err
	}
	for _, name := range claimed.JobOrder {
		about := claimed.JobMetadata[name]
		fmt.Printf("claimed: %x, attempt %d, %d left, task %q\n",
			claimed.Jobs[name], about.GetAttempt(), about.GetAttemptsRemaining(), about.Headers["pinlater-task"])
	}
	one, two, three := claimed.JobOrder[0], claimed.JobOrder[1], claimed.JobOrder[2]

	// Saves how far two has come and renews its claim.
	step := pinlater.NewPinLaterCheckpointJobRequest()
	step.JobDescriptor, step.ClaimToken = two, claimed.JobMetadata[two].ClaimToken
	step.NewBody_ = []byte("two, half done")
	saved, err := client.CheckpointJobsFenced(ctx, me, &pinlater.PinLaterCheckpointJobsRequest{
		QueueName: queue, Requests: []*pinlater.PinLaterCheckpointJobRequest{step}})
	if err != nil {
		return err
	}
	fmt.Println("checkpoint:", saved[0].Outcome)

	// Three failed and is due again at once.
	retry := ack(claimed, three)
	retry.ErrorType, retry.ErrorText = thrift.StringPtr("Timeout"), thrift.StringPtr("no answer")
	again, err := claim(ctx, client, &pinlater.PinLaterJobAckRequest{QueueName: queue, JobsFailed: []*pinlater.PinLaterJobAckInfo{retry}})
	if err != nil {
		return err
	}
	fmt.Printf("ack rode along: %s; claimed again: %s, attempt %d\n",
		again.AckOutcomes[0].Outcome, again.Jobs[three], again.JobMetadata[three].GetAttempt())

	done, hopeless, late, later := ack(claimed, one), ack(claimed, two), ack(claimed, three), ack(again, three)
	done.AppendCustomStatus = ", done"
	hopeless.FinalFailure = thrift.BoolPtr(true) // whatever attempts are left
	hopeless.ErrorType, hopeless.ErrorText = thrift.StringPtr("BadPicture"), thrift.StringPtr("it is empty")
	later.RetryDelayMillis = 3_600_000
	for _, acks := range []*pinlater.PinLaterJobAckRequest{
		{QueueName: queue, JobsSucceeded: []*pinlater.PinLaterJobAckInfo{done}, JobsFailed: []*pinlater.PinLaterJobAckInfo{hopeless, late}},
		{QueueName: queue, JobsFailed: []*pinlater.PinLaterJobAckInfo{later}},
	} {
		outcomes, err := client.AckJobs(ctx, me, acks)
		if err != nil {
			return err
		}
		for _, each := range outcomes {
			fmt.Println("ack:", each.Outcome)
		}
	}
	return nil
}

// An ack counts for the claim whose token it carries: `late` above comes too late, the job has been claimed again since.
func ack(response *pinlater.PinLaterDequeueResponse, name string) *pinlater.PinLaterJobAckInfo {
	info := pinlater.NewPinLaterJobAckInfo()
	info.JobDescriptor, info.ClaimToken = name, response.JobMetadata[name].ClaimToken
	return info
}

func lookAgain(ctx context.Context, client *pinlater.PinLaterClient, jobs []string) error {
	found, err := client.LookupJobs(ctx, me, &pinlater.PinLaterLookupJobRequest{JobDescriptors: jobs, IncludeBody: true})
	if err != nil {
		return err
	}
	for _, name := range jobs {
		job := found[name]
		fmt.Printf("now: %x, %s, %d of %d attempts left, status %q, error %q\n",
			job.Body, job.JobState, job.AttemptsRemaining, job.AttemptsAllowed, job.CustomStatus, job.GetLastErrorType())
	}
	failed, err := count(ctx, client, pinlater.PinLaterJobState_FAILED, false)
	if err != nil {
		return err
	}
	future, err := count(ctx, client, pinlater.PinLaterJobState_PENDING, true)
	if err != nil {
		return err
	}
	fmt.Println("failed:", failed, "waiting for later:", future)
	return nil
}

func beRefused(ctx context.Context, client *pinlater.PinLaterClient) error {
	request := pinlater.NewPinLaterDequeueRequest()
	request.QueueName, request.Limit = "no_such_queue", 1
	_, err := client.DequeueJobs(ctx, me, request)
	var refusal *pinlater.PinLaterException
	if !errors.As(err, &refusal) {
		return fmt.Errorf("expected a refusal, got %w", err)
	}
	fmt.Printf("refused: %s, detail %s, retryable %t: %s\n",
		refusal.ErrorCode, refusal.GetDetail(), refusal.GetRetryable(), refusal.Message)
	return nil
}
