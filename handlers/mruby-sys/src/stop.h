/* Ends a step that goes on after an exception. With the debug hook each further instruction raises, and the VM survives. Without it the step
 * is left in the middle, at the cost of its VM: how and why it is safe: stop.c. memory.c leaves steps, too, on its own thread.
 *
 * Contract: a step that may be left runs like this:
 *
 *   if (sigsetjmp(vm->leave, 0)) return FB_STOPPED;
 *   stop_running = vm; ...; stop_running = NULL;
 *
 * No local variable of that function is read after the jump, and the VM is only discarded.
 */
#ifndef FIREBRICK_STOP_H
#define FIREBRICK_STOP_H

#include "vm.h"

/* Whether a signal leaves the interpreter: only where there is no other way. */
#if !defined(MRB_USE_DEBUG_HOOK) && defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define CAN_STOP 1
#else
#define CAN_STOP 0
#endif

/* The interpreter's loop has some 100 instructions; on the tested platforms it takes 15 to 60 KiB. */
#define STOP_MIN_EXTENT ((uintptr_t)1 << 12)
#define STOP_MAX_EXTENT ((uintptr_t)1 << 18)

/* The VM that runs a step on this thread. */
extern _Thread_local fb_vm *volatile stop_running;

/* Verifies, once per process, that the extent of the interpreter is known; until then, and if it is not, fb_stop does nothing. */
void stop_verify(fb_vm *vm);

/* The first of these addresses after `begin`; 0 if there is none. */
uintptr_t stop_nearest(uintptr_t begin, const uintptr_t *others, size_t count);

/* Whether [begin, end) can be the interpreter's loop: neither too small nor too large, the place where the interpreter calls a
 * method is in it, and none of the other functions is. */
int stop_plausible(uintptr_t begin, uintptr_t end, uintptr_t call_site, const uintptr_t *others, size_t count);

#endif
