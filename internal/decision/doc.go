// Package decision is the machinery of everything that decides by time or by ends: periodic rules,
// plans, flows. A [Planner] knows what to decide; this package does the rest, the same for all.
//
//	document ──Planner──▶ decision ──one write, guarded by the document's rev──▶ planned, in the document
//	                                                                              │
//	        tasks are sent, the rest follows (each idempotent) ◀── who sees it ───┘
//
// A decision is one write on one document. It names the rev that it was decided on, and carries
// what is to be done as a snapshot. So a decision is made once; and a process that dies in
// between leaves it to the next one that looks.
//
// Any number of engines ([Engine.Run]) may work at once, without a leader: each document is one
// engine's by rank, and the next one's when the first is late. One look asks all of a process's
// questions in one command: what is due, what is due next, which tasks have ended, what the dead
// have left. The ends of a document's tasks are told to it together with what is due. What is
// carried out leaves the document with its next decision, or a few seconds later.
package decision
