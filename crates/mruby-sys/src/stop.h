/* See stop.c. A step that may be stopped runs like this:
 *
 *   if (sigsetjmp(vm->leave, 0)) return FB_STOPPED;   (where CAN_STOP)
 *   stop_running = vm; ...; stop_running = NULL;
 */
#ifndef FIREBRICK_STOP_H
#define FIREBRICK_STOP_H

#include "vm.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define CAN_STOP 1
#else
#define CAN_STOP 0
#endif

/* The VM that this thread runs a step of. */
extern _Thread_local fb_vm *volatile stop_running;

/* Once before the first step of any VM. */
void stop_prepare(void);

#endif
