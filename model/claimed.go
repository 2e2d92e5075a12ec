package model

// A change of a task's options does not touch a running execution (seed 004). The options of
// its claim also judge its end: the retry and its delay, the budgets of the task and of each worker,
// Pending or Failure, the callback, the retention. The change takes effect at the next claim. There
// are three exceptions. The worker filter takes effect at once. The ping interval takes effect at the
// next ping, and leaves the lease as it is. The number of wanted workers does not belong to one
// execution, and takes effect at once.
//
// The task's document holds the current options. If they change while an execution is open, the
// entry of that execution keeps the options of its claim.

// ClaimedOptions are the options of the task at the claim of an execution, as far as they apply
// to the execution. Unlike [Options], they are stored even if they are empty.
type ClaimedOptions Options
