// Package form has the one written form of each document that people make: the options of a
// task ([Options]), a task to send ([Task]), the settings of a type ([Type]), a periodic rule
// ([Rule]), a flow ([Flow]) and a plan ([Plan]). YAML and JSON files, lines of JSONL and the flags of commands are read into
// the same structs; what is stored is written from them.
//
//	options.go task.go tasktype.go rule.go flow.go plan.go   the forms
//	model.go    forms to the documents of package model, and back, by the names of their fields
//	field.go    what the tags of a field say
//	bind.go     a value that was read into a form, and all that is wrong with it
//	fielderror.go   what is wrong, with its place
//	yaml.go json.go   text to values, with line and column
//	settings.go a configuration file: no form, but names with values
//	secrets.go  which secrets a form changes
//	write.go    a form to YAML, to lines of fields, to the lines of a difference
//	flags.go    a form as flags
//	value.go    durations, times and JSON values
//
// A field has the name that it has in the stored document. Durations are written as 90s, 5m,
// 2h or 7d, under a name without _ms; the stored name, whose value is a whole number of
// milliseconds, is accepted, too:
//
//	written              stored
//	timeout              execution_timeout_ms (of options), timeout_ms (of http)
//	ping_interval        ping_interval_ms
//	worker_timeout       worker_timeout_ms
//	retention            retention_ms
//	retry.interval       retry.interval_ms
//	retry.sequence       retry.sequence_ms
//	retry.max_interval   retry.max_interval_ms
//	retry.local.interval retry.local.interval_ms
//	in                   in_ms
//	expires_in           expires_in_ms
//	per                  per_ms (of a rate_limit)
//	jitter               jitter_ms
//	run_retention        run_retention_ms
//	catch_up.window      catch_up.window_ms
//	callback_timeout     callback_timeout_ms (of http)
//	plan_exec_timeout    plan_exec_timeout_ms
package form
