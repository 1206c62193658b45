/*
 * The interface between Rust and mruby.
 *
 * mruby raises by longjmp, and its values are valid only inside its heap. So no mrb_value leaves the shim, every entry runs
 * protected, and only bytes cross: tapes (below), numbers, pointers that are valid until the next entry.
 *
 * Contract:
 *  1. No entry raises, jumps or unwinds. FB_BROKEN means that the driver itself failed, FB_STOPPED that the step was
 *     left in the middle: after either only fb_discard may be called; open a new VM.
 *  2. A VM belongs to the thread that opened it; only fb_interrupt, fb_serial and fb_stop may be called from another one.
 *  3. host.call is a leaf: it takes bytes, returns bytes, and calls nothing of this file.
 *
 * A tape is a serialized value: a tag, then
 *   'n' nil   't' true   'f' false
 *   'i' i64   'd' f64                    (native byte order)
 *   's' u32 length, bytes (String)       ':' the same (Symbol)
 *   '[' u32 count, values                '{' u32 count, key value ...
 *   '!' String value (class), String value (message): an exception; only into Ruby
 */
#ifndef FIREBRICK_SHIM_H
#define FIREBRICK_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef struct fb_vm fb_vm;

typedef struct {
  const uint8_t *data;
  size_t length;
} fb_bytes;

/* Runs Rt.call(op, *args). `args` is a tape of an Array; the result is a tape that is valid until the next call. */
typedef fb_bytes (*fb_call)(void *host, uint32_t op, fb_bytes args);

typedef struct {
  void *host;
  fb_call call;
  size_t heap_limit; /* bytes of the whole VM */
  size_t task_limit; /* bytes that one step may add */
} fb_config;

enum {
  FB_DONE = 0,   /* the task has ended: fb_out is its result */
  FB_WAIT = 1,   /* the task waits: fb_out is the Array [op, args ...] */
  FB_RAISED = 2, /* it raised: fb_out is [class, message, [backtrace ...]] */
  FB_BROKEN = 3, /* the VM cannot be used any more: fb_out may have the reason */
  FB_STOPPED = 4, /* the same: fb_stop has ended the step */
};

/* One pair of a Rack env. A key or value is bytes, or a number of fb_intern (bytes NULL). */
typedef struct {
  const uint8_t *key;
  const uint8_t *value;
  uint32_t key_length; /* or the number */
  uint32_t value_length;
} fb_field;

/* NULL with a reason (static text) if there is not enough memory or the library does not match its headers. */
fb_vm *fb_open(const fb_config *config, const char **reason);
void fb_close(fb_vm *vm);
/* Frees the memory of a VM without calling mruby: after FB_BROKEN and FB_STOPPED. */
void fb_discard(fb_vm *vm);

const char *fb_version(void);
/* Whether the library has the debug hook, so that any code can be interrupted. */
int fb_has_hook(void);
/* Whether fb_stop works. Known after the first fb_open. */
int fb_can_stop(void);

/* The value or error of the last entry, as a tape; valid until the next entry. */
fb_bytes fb_out(fb_vm *vm);

/* Runs code outside of any task: it cannot wait. FB_DONE, FB_RAISED. */
int fb_eval(fb_vm *vm, const uint8_t *code, size_t length, const char *file);

/* FB_DONE, or FB_RAISED with ["SyntaxError", message, [line, column]]. Nothing is run. */
int fb_check(fb_vm *vm, const uint8_t *code, size_t length, const char *file);

/* Keeps a frozen String for good; its number, from 0. UINT32_MAX without memory. */
uint32_t fb_intern(fb_vm *vm, const uint8_t *text, size_t length);

/* Starts `Rt.<job>(*args)` as task `slot`, which must be idle. FB_DONE, FB_WAIT, FB_BROKEN. */
int fb_start(fb_vm *vm, uint32_t slot, uint32_t job, fb_bytes args);

/* The same for a request: `Rt.respond(handler, env, more)` with the handler of this number in Rt.apps, and an env of the
 * template of Rt.env and these fields. `more` is passed as 2 if Ruby has to convert some fields first, otherwise as 1. */
int fb_request(fb_vm *vm, uint32_t slot, uint32_t app, const fb_field *fields, size_t count, int more);

/* Continues a task that waits; `value` is the result of its wait, or an exception ('!'). */
int fb_resume(fb_vm *vm, uint32_t slot, fb_bytes value);

/* Drops the fiber of a task that waits: the next job of this slot gets a new one. */
void fb_abandon(fb_vm *vm, uint32_t slot);

/* Bytes that one step may add to the heap from now on. */
void fb_limit(fb_vm *vm, size_t task_limit);

/* Bytes of the heap. */
size_t fb_heap(fb_vm *vm);
/* Runs a full collection. */
void fb_collect(fb_vm *vm);

/* Raises Rt::Interrupted in the current step as soon as it can be interrupted. From any thread. */
void fb_interrupt(fb_vm *vm);

/* Number of the current or last step. From any thread. */
unsigned fb_serial(fb_vm *vm);
/* Ends that step, even if it never allocates or rescues every exception. Has no effect if another step runs by now. From any thread
 * while the one that opened the VM lives. With the debug hook Rt::Interrupted is raised again and again until the step has ended.
 * Without it the step ends at the cost of the VM and returns FB_STOPPED, by SIGVTALRM; no effect if the thread is outside of mruby's
 * interpreter at that moment: try again. */
void fb_stop(fb_vm *vm, unsigned serial);

#endif
