//! Why devices are lost: no memory for a kernel, and a panic of a thread.

use std::sync::{
    Arc,
    mpsc::{Sender, channel},
};

use super::{
    grid::Dispatch,
    limit::Stops,
    loss::Loss,
    pool::Pool,
    timeline::{Timeline, Work},
};
use crate::compile::{self, Kernel, store::Store};

/// A submission made of a function, which tells at its end whether it was given up.
struct Given<F> {
    run: F,
    is_small: bool,
    given_up: Sender<bool>,
}

impl<F: Fn(Option<&Pool>, &Stops) -> Result<(), Loss> + Send + 'static> Work for Given<F> {
    fn is_small(&self) -> bool {
        self.is_small
    }

    fn run(&self, pool: Option<&Pool>, stops: &Stops) -> Result<(), Loss> {
        (self.run)(pool, stops)
    }

    fn finish(self) {
        let _ = self.given_up.send(false);
    }

    fn give_up(self) {
        let _ = self.given_up.send(true);
    }
}

/// The loss of a queue by a submission, on the submitting thread and on the driver's. Later submissions are refused with it.
fn losses<F>(run: F) -> [Loss; 2]
where
    F: Fn(Option<&Pool>, &Stops) -> Result<(), Loss> + Send + Clone + 'static,
{
    [true, false].map(|is_small| {
        let line = Timeline::new(Arc::new(Pool::new(2)));
        let (tell, told) = channel();
        let given = || Given {
            run: run.clone(),
            is_small,
            given_up: tell.clone(),
        };
        line.submit(given()).unwrap();
        let limit = std::time::Duration::from_secs(60);
        assert_eq!(told.recv_timeout(limit), Ok(true));
        let loss = line.loss().cloned().unwrap();
        assert_eq!(line.submit(given()), Err(loss.clone()));
        assert!(line.stops().is_stopped());
        line.close();
        loss
    })
}

/// A kernel that asks for so much memory: no text can, since the limits of the adapter are less.
fn kernel(workgroup_bytes: u64, frame_bytes: u64) -> Arc<Kernel> {
    let source = "@compute @workgroup_size(4) fn hungry() {}";
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let info = naga::valid::Validator::new(Default::default(), Default::default())
        .validate(&module)
        .unwrap();
    let options = compile::Options {
        checks_bounds: true,
        lanes: 1,
        instruments: Default::default(),
        schedule: None,
    };
    let entry = ("hungry", &Default::default());
    let store = (&Store::default(), false);
    let mut kernel = compile::compile(&module, &info, entry, options, store).unwrap();
    (kernel.workgroup_bytes, kernel.frame_bytes) = (workgroup_bytes, frame_bytes);
    Arc::new(kernel)
}

fn dispatch(kernel: &Arc<Kernel>) -> Dispatch {
    Dispatch {
        kernel: kernel.clone(),
        buffers: Vec::new(),
        reduced: Default::default(),
        immediates: Arc::new([]),
        count: [9, 1, 1],
        zero_workgroup: true,
        monitor: None,
        schedule: None,
    }
}

#[test]
fn a_kernel_without_memory_loses_the_device_by_its_name_and_need() {
    for (workgroup, frame) in [(1 << 60, 0), (0, 1 << 60), (u64::MAX, u64::MAX)] {
        let kernel = kernel(workgroup, frame);
        let expected = Loss::OutOfMemory {
            kernel: "hungry".into(),
            bytes: workgroup.saturating_add(frame),
        };
        let found = losses(move |pool, stops| {
            stops.run(None, |stop| match pool {
                Some(pool) => pool.run(dispatch(&kernel), stop),
                None => Pool::run_alone(dispatch(&kernel), stop),
            })
        });
        assert_eq!(found, [expected.clone(), expected]);
    }
}

#[test]
fn a_kernel_with_enough_memory_loses_nothing() {
    let kernel = kernel(64, 64);
    let line = Timeline::new(Arc::new(Pool::new(2)));
    let (given_up, told) = channel();
    line.submit(Given {
        run: move |_: Option<&Pool>, stops: &Stops| {
            stops.run(None, |stop| Pool::run_alone(dispatch(&kernel), stop))
        },
        is_small: true,
        given_up,
    })
    .unwrap();
    assert_eq!(told.try_recv(), Ok(false));
    assert_eq!(line.loss(), None);
}

#[test]
fn a_panic_of_a_thread_loses_the_device_with_the_message() {
    let expected = Loss::Panicked {
        message: "on purpose: 7".into(),
    };
    // A text, and one made at run time.
    let found = losses(|_, _| panic!("on purpose: {}", std::hint::black_box(7)));
    assert_eq!(found, [expected.clone(), expected.clone()]);
    assert_eq!(
        losses(|_, _| std::panic::panic_any("on purpose: 7")),
        [expected.clone(), expected]
    );
    let expected = Loss::Panicked {
        message: "no message".into(),
    };
    let found = losses(|_, _| std::panic::panic_any(7u32));
    assert_eq!(found, [expected.clone(), expected]);
}
