//! Recovery from a kernel's operations refused by the processor.
//!
//! Bounds are checked, so that no kernel touches foreign memory. But modules can ask for no checks, pointers into the
//! unified heap can be wrong, and memory lent by a host can go away. The process must live on.
//!
//! *How it works.* A handler of the system's signals looks where the fault happened. In code of the kernel run by this
//! thread, the handler lets the thread go on at the end of the kernel's fiber, whose stack is given up with all frames:
//! only frames of kernels lie there, without destructors. Anywhere else, the fault goes to the handler installed
//! before.

use std::{cell::Cell, ops::Range};

use corosensei::trap::CoroutineTrapHandler;

use super::{fiber::End, loss::Loss};

/// A fault of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) what: &'static str,
    pub(super) address: usize,
}

impl Fault {
    pub(super) fn loss(self, kernel: &str) -> Loss {
        Loss::Fault {
            kernel: kernel.into(),
            what: self.what,
            address: self.address,
        }
    }
}

/// The kernel run by this thread.
#[derive(Clone, Copy)]
struct Running {
    code_start: usize,
    code_end: usize,
    way_out: CoroutineTrapHandler<End>,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// Runs `f`, which resumes a fiber with this kernel code. A fault in the code ends the fiber with [`End::Fault`].
pub(super) fn catching<R>(
    code: Range<usize>,
    way_out: CoroutineTrapHandler<End>,
    f: impl FnOnce() -> R,
) -> R {
    os::install();
    RUNNING.set(Some(Running {
        code_start: code.start,
        code_end: code.end,
        way_out,
    }));
    let result = f();
    RUNNING.set(None);
    result
}

/// The kernel run by this thread, if the instruction is in the kernel's code.
fn running(instruction: usize) -> Option<Running> {
    let running = RUNNING.get()?;
    (running.code_start..running.code_end)
        .contains(&instruction)
        .then_some(running)
}

#[cfg(unix)]
mod os {
    use std::{
        ffi::c_void,
        mem::MaybeUninit,
        sync::{Once, OnceLock},
    };

    use super::{End, Fault, Running, running};

    /// Signals of faults, with names for messages.
    const SIGNALS: [(i32, &str); 4] = [
        (libc::SIGSEGV, "an access to memory that is not there"),
        (
            libc::SIGBUS,
            "an access to memory that the system could not provide",
        ),
        (
            libc::SIGILL,
            "an instruction that the processor does not have",
        ),
        (libc::SIGFPE, "an arithmetic exception"),
    ];

    /// The earlier handlers of [`SIGNALS`].
    static BEFORE: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

    /// Installs the handler, once for the process.
    pub(super) fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            let before = SIGNALS.map(|(signal, _)| {
                // SAFETY: asks for an action, written to a variable of the right size.
                unsafe {
                    let mut before = MaybeUninit::zeroed();
                    libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr());
                    before.assume_init()
                }
            });
            // Set before the handler is installed: the handler needs the earlier ones.
            if BEFORE.set(before).is_err() {
                return;
            }
            for (signal, _) in SIGNALS {
                // SAFETY: the action is complete: a handler with the signature for `SA_SIGINFO`, on the alternate
                // stack, since a fiber's stack may have run out. The handler calls only functions allowed in signal
                // handlers.
                let installed = unsafe {
                    let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                    action.sa_sigaction = handle as *const () as usize;
                    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                    libc::sigemptyset(&mut action.sa_mask);
                    libc::sigaction(signal, &action, std::ptr::null_mut())
                };
                if installed != 0 {
                    log::warn!(
                        "faults of kernels cannot be caught: {}",
                        std::io::Error::last_os_error()
                    );
                }
            }
        });
    }

    /// # Safety
    /// To be called by the system, for a signal of a fault.
    unsafe extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the system passes a context of this type.
        let context_of_thread = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        let Some(running) = running(instruction(context_of_thread)) else {
            // SAFETY: with the arguments from the system.
            return unsafe { pass_on(signal, info, context) };
        };
        let what = SIGNALS.iter().find(|(number, _)| *number == signal);
        let fault = Fault {
            what: what.map_or("a signal", |(_, what)| what),
            // SAFETY: the system passes information of this type, with an address for these signals.
            address: unsafe { (*info).si_addr() } as usize,
        };
        // SAFETY: the fault happened in kernel code, assembly as far as Rust is concerned, on the fiber of `way_out`.
        // The registers are set below.
        let registers = unsafe { way_out(running, fault) };
        leave(context_of_thread, &registers);
    }

    unsafe fn way_out(running: Running, fault: Fault) -> corosensei::trap::TrapHandlerRegs {
        // SAFETY: by contract of the caller.
        unsafe {
            running
                .way_out
                .setup_trap_handler(move || End::Fault(fault))
        }
    }

    /// Passes the signal to the earlier handler.
    unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
        let index = SIGNALS.iter().position(|(number, _)| *number == signal);
        let before = BEFORE.get().zip(index).map(|(before, index)| before[index]);
        let Some(before) = before else { return };
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The instruction is run again, and meets the system's default action. SAFETY: sets an action returned
                // by the system.
                unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: an action with this flag has a handler of this type.
                unsafe {
                    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, context);
                }
            }
            handler => {
                // SAFETY: an action without the flag has a handler of this type.
                unsafe {
                    let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn instruction(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn leave(context: &mut libc::ucontext_t, to: &corosensei::trap::TrapHandlerRegs) {
        let registers = &mut context.uc_mcontext.gregs;
        for (register, value) in [
            (libc::REG_RIP, to.rip),
            (libc::REG_RSP, to.rsp),
            (libc::REG_RBP, to.rbp),
            (libc::REG_RDI, to.rdi),
            (libc::REG_RSI, to.rsi),
        ] {
            registers[register as usize] = value as i64;
        }
    }

    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    fn instruction(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.pc as usize
    }

    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    fn leave(context: &mut libc::ucontext_t, to: &corosensei::trap::TrapHandlerRegs) {
        let registers = &mut context.uc_mcontext;
        registers.pc = to.pc;
        registers.sp = to.sp;
        registers.regs[0] = to.x0;
        registers.regs[1] = to.x1;
        registers.regs[29] = to.x29;
        registers.regs[30] = to.lr;
    }

    #[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
    fn instruction(context: &libc::ucontext_t) -> usize {
        // SAFETY: the system passes the registers of the thread.
        unsafe { (*context.uc_mcontext).__ss.__pc as usize }
    }

    #[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
    fn leave(context: &mut libc::ucontext_t, to: &corosensei::trap::TrapHandlerRegs) {
        // SAFETY: the system passes the registers of the thread, and restores the thread from there.
        let registers = unsafe { &mut (*context.uc_mcontext).__ss };
        registers.__pc = to.pc;
        registers.__sp = to.sp;
        registers.__x[0] = to.x0;
        registers.__x[1] = to.x1;
        registers.__fp = to.x29;
        registers.__lr = to.lr;
    }

    #[cfg(all(target_vendor = "apple", target_arch = "x86_64"))]
    fn instruction(context: &libc::ucontext_t) -> usize {
        // SAFETY: the system passes the registers of the thread.
        unsafe { (*context.uc_mcontext).__ss.__rip as usize }
    }

    #[cfg(all(target_vendor = "apple", target_arch = "x86_64"))]
    fn leave(context: &mut libc::ucontext_t, to: &corosensei::trap::TrapHandlerRegs) {
        // SAFETY: the system passes the registers of the thread, and restores the thread from there.
        let registers = unsafe { &mut (*context.uc_mcontext).__ss };
        registers.__rip = to.rip;
        registers.__rsp = to.rsp;
        registers.__rbp = to.rbp;
        registers.__rdi = to.rdi;
        registers.__rsi = to.rsi;
    }

    /// On other systems no fault is attributed to a kernel.
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    fn instruction(_context: &libc::ucontext_t) -> usize {
        0
    }

    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    fn leave(_context: &mut libc::ucontext_t, _to: &corosensei::trap::TrapHandlerRegs) {}
}

#[cfg(windows)]
mod os {
    use std::sync::Once;

    use windows_sys::Win32::{
        Foundation::{
            EXCEPTION_ACCESS_VIOLATION, EXCEPTION_ILLEGAL_INSTRUCTION, EXCEPTION_IN_PAGE_ERROR,
            EXCEPTION_INT_DIVIDE_BY_ZERO, EXCEPTION_INT_OVERFLOW, EXCEPTION_STACK_OVERFLOW,
        },
        System::Diagnostics::Debug::{
            AddVectoredExceptionHandler, CONTEXT, EXCEPTION_CONTINUE_EXECUTION,
            EXCEPTION_CONTINUE_SEARCH, EXCEPTION_POINTERS,
        },
    };

    use super::{End, Fault, running};

    /// Installs the handler, once for the process.
    pub(super) fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // SAFETY: the handler has the signature required by the system, and is never removed.
            let installed = unsafe { AddVectoredExceptionHandler(1, Some(handle)) };
            if installed.is_null() {
                log::warn!(
                    "faults of kernels cannot be caught: {}",
                    std::io::Error::last_os_error()
                );
            }
        });
    }

    /// # Safety
    /// To be called by the system.
    unsafe extern "system" fn handle(pointers: *mut EXCEPTION_POINTERS) -> i32 {
        // SAFETY: the system passes a record and the registers of the thread.
        let (record, context) = unsafe {
            (
                &*(*pointers).ExceptionRecord,
                &mut *(*pointers).ContextRecord,
            )
        };
        let what = match record.ExceptionCode {
            EXCEPTION_ACCESS_VIOLATION => "an access to memory that is not there",
            EXCEPTION_IN_PAGE_ERROR => "an access to memory that the system could not provide",
            EXCEPTION_STACK_OVERFLOW => "the end of its stack",
            EXCEPTION_ILLEGAL_INSTRUCTION => "an instruction that the processor does not have",
            EXCEPTION_INT_DIVIDE_BY_ZERO | EXCEPTION_INT_OVERFLOW => "an arithmetic exception",
            _ => return EXCEPTION_CONTINUE_SEARCH,
        };
        let Some(running) = running(instruction(context)) else {
            return EXCEPTION_CONTINUE_SEARCH;
        };
        let fault = Fault {
            what,
            address: if record.NumberParameters > 1 {
                record.ExceptionInformation[1]
            } else {
                record.ExceptionAddress as usize
            },
        };
        // SAFETY: the fault happened in kernel code, assembly as far as Rust is concerned, on the fiber of `way_out`.
        // The registers are set below.
        let to = unsafe {
            running
                .way_out
                .setup_trap_handler(move || End::Fault(fault))
        };
        leave(context, &to);
        EXCEPTION_CONTINUE_EXECUTION
    }

    #[cfg(target_arch = "x86_64")]
    fn instruction(context: &CONTEXT) -> usize {
        context.Rip as usize
    }

    #[cfg(target_arch = "x86_64")]
    fn leave(context: &mut CONTEXT, to: &corosensei::trap::TrapHandlerRegs) {
        context.Rip = to.rip;
        context.Rsp = to.rsp;
        context.Rbp = to.rbp;
        context.Rdi = to.rdi;
        context.Rsi = to.rsi;
    }

    /// Fibers have no way out on other processors yet: such a fault ends the process, as any other.
    #[cfg(not(target_arch = "x86_64"))]
    fn instruction(_context: &CONTEXT) -> usize {
        0
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn leave(_context: &mut CONTEXT, _to: &corosensei::trap::TrapHandlerRegs) {}
}
