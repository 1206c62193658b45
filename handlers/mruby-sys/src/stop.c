/* Ends a step that computes without end. See stop.h for the contract.
 *
 * A library with MRB_USE_DEBUG_HOOK (Debian 13) needs nothing of this: each instruction raises until the step has ended (memory.c).
 * Without it the step is ended at the cost of its VM. mruby checks for nothing while it executes instructions that do not allocate.
 * So the watchdog sends the thread a SIGVTALRM, and its handler leaves the interpreter by siglongjmp. That is safe under these conditions, all of which
 * `on_stop` checks or the shim guarantees:
 *
 *  1. The signal arrives on the thread that runs the step (pthread_kill), so the handler sees that thread's stack.
 *  2. The step is still the one to be stopped: `serial` equals `unwanted`. A late signal is ignored.
 *  3. The program counter is inside mrb_vm_exec, the interpreter's loop. That function calls others but is not itself a part of
 *     libc, the allocator or the garbage collector: whatever lock or structure these have is consistent.
 *  4. No Rust frame is between take_steps and mrb_vm_exec: host.call is a leaf that never enters mruby. So the jump unwinds C
 *     frames of mruby and of this shim only, and these own nothing but memory of the VM.
 *  5. The VM is never entered again. Its memory is freed block by block (fb_discard), not by mruby.
 *  6. The handler runs with SA_NODEFER, so the signal mask need not be restored (sigsetjmp with 0).
 *
 * Condition 3 needs the extent of mrb_vm_exec, which C cannot name. It starts at its address; it ends at the latest where the
 * next function of the same object file (vm.c of mruby) starts. Compilers may order functions as they like, so this is a guess. It is
 * verified when the first VM is opened (`stop_verify`); if it is not plausible, nothing ever jumps, and code that cannot be
 * interrupted is only reported in the log.
 *
 * Checked with Debian 12's mruby 3.1.0, x86-64 (handlers/mruby-sys/tests/stop.rs, handlers/script/src/watchdog.rs), which has no hook: `while true; end`
 * ends after twice mruby.step_time, 0.84 s at 400 ms; otherwise it would hold its front thread, with all its connections, for ever. Off by
 * `mruby.step_time = "off"`, and by build condition (CAN_STOP in stop.h). Where there is neither a hook nor this, the log says once that
 * mruby.step_time ends only code that allocates.
 */
#include "stop.h"

_Thread_local fb_vm *volatile stop_running;

int stop_plausible(uintptr_t begin, uintptr_t end, uintptr_t call_site, const uintptr_t *others, size_t count) {
  if (begin == 0 || end <= begin) return 0;
  if (end - begin < STOP_MIN_EXTENT || end - begin > STOP_MAX_EXTENT) return 0;
  if (call_site < begin || call_site >= end) return 0;
  for (size_t i = 0; i < count; i++) {
    if (others[i] >= begin && others[i] < end) return 0;
  }
  return 1;
}

uintptr_t stop_nearest(uintptr_t begin, const uintptr_t *others, size_t count) {
  uintptr_t end = 0;
  for (size_t i = 0; i < count; i++) {
    if (others[i] > begin && (!end || others[i] < end)) end = others[i];
  }
  return end;
}

#if CAN_STOP
#include <mruby/class.h>
#include <mruby/gc.h>

#include <stdlib.h>
#include <ucontext.h>

/* End of mrb_vm_exec; 0 as long as it has not been verified. Written once, before any step runs. */
static _Atomic uintptr_t interpreter_end;

/* Where the interpreter called `call_site_of_interpreter` from. */
static uintptr_t call_site;

static mrb_value call_site_of_interpreter(mrb_state *mrb, mrb_value self) {
  (void)mrb;
  call_site = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
  return self;
}

/* Functions of mruby's vm.c: the extent ends at the first of them. */
static uintptr_t guess_end(void) {
  const uintptr_t neighbours[] = {(uintptr_t)mrb_vm_run, (uintptr_t)mrb_top_run, (uintptr_t)mrb_funcall_with_block,
                                  (uintptr_t)mrb_yield_with_class};
  return stop_nearest((uintptr_t)mrb_vm_exec, neighbours, sizeof neighbours / sizeof *neighbours);
}

/* Functions in whose middle no step may be left: none may be inside the extent. */
static int is_plausible(uintptr_t end) {
  const uintptr_t others[] = {(uintptr_t)malloc,       (uintptr_t)realloc,         (uintptr_t)free,
                              (uintptr_t)mrb_realloc,  (uintptr_t)mrb_malloc,      (uintptr_t)mrb_free,
                              (uintptr_t)mrb_full_gc,  (uintptr_t)mrb_obj_alloc,   (uintptr_t)mrb_incremental_gc,
                              (uintptr_t)mrb_ary_push, (uintptr_t)mrb_hash_set,    (uintptr_t)mrb_str_new,
                              (uintptr_t)mrb_exc_raise, (uintptr_t)fb_start,       (uintptr_t)vm_enter,
                              (uintptr_t)call_site_of_interpreter};
  return stop_plausible((uintptr_t)mrb_vm_exec, end, call_site, others, sizeof others / sizeof *others);
}

static uintptr_t program_counter(const ucontext_t *context) {
#ifdef __x86_64__
  return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
  return (uintptr_t)context->uc_mcontext.pc;
#endif
}

static void on_stop(int number, siginfo_t *info, void *context) {
  fb_vm *vm = stop_running;
  uintptr_t at = program_counter(context);
  (void)number;
  (void)info;
  if (!vm || atomic_load(&vm->unwanted) != atomic_load(&vm->serial)) return;
  if (at < (uintptr_t)mrb_vm_exec || at >= atomic_load(&interpreter_end)) return;
  stop_running = NULL;
  siglongjmp(vm->leave, LEFT_FOR_TIME);
}

static pthread_mutex_t verifying = PTHREAD_MUTEX_INITIALIZER;
static int verified;

void stop_verify(fb_vm *vm) {
  pthread_mutex_lock(&verifying);
  if (!verified) {
    static const char call[] = "Rt.call_site_of_interpreter";
    struct RClass *rt = mrb_module_get(vm->mrb, "Rt");
    verified = 1;
    mrb_define_module_function(vm->mrb, rt, "call_site_of_interpreter", call_site_of_interpreter, MRB_ARGS_NONE());
    uintptr_t end = guess_end();
    if (fb_eval(vm, (const uint8_t *)call, sizeof call - 1, "firebrick/stop.rb") == FB_DONE && is_plausible(end)) {
      struct sigaction action = {.sa_sigaction = on_stop, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
      sigemptyset(&action.sa_mask);
      if (sigaction(SIGVTALRM, &action, NULL) == 0) atomic_store(&interpreter_end, end);
    }
    mrb_undef_class_method(vm->mrb, rt, "call_site_of_interpreter");
  }
  pthread_mutex_unlock(&verifying);
}

int fb_can_stop(void) { return atomic_load(&interpreter_end) != 0; }

void fb_stop(fb_vm *vm, unsigned serial) {
  /* Without a handler SIGVTALRM would end the process. */
  if (!fb_can_stop()) return;
  atomic_store(&vm->unwanted, serial);
  pthread_kill(vm->thread, SIGVTALRM);
}
#elif defined(MRB_USE_DEBUG_HOOK)
void stop_verify(fb_vm *vm) { (void)vm; }
int fb_can_stop(void) { return 1; }
void fb_stop(fb_vm *vm, unsigned serial) {
  atomic_store(&vm->unwanted, serial);
  atomic_store(&vm->interrupted, UNTIL_IT_ENDS);
}
#else
void stop_verify(fb_vm *vm) { (void)vm; }
int fb_can_stop(void) { return 0; }
void fb_stop(fb_vm *vm, unsigned serial) {
  (void)vm;
  (void)serial;
}
#endif

unsigned fb_serial(fb_vm *vm) { return atomic_load(&vm->serial); }
