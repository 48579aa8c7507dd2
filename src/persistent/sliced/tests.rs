use super::*;
use crate::persistent::frame::Frame;
use crate::persistent::policy::LeasePolicy;
use crate::rpc::port::client::Client;
use crate::rpc::port::layout::PortLayout;

impl Core {
    /// Runs the test's closure while a slice is gathered, and counts the calls posted there.
    pub(super) fn posts_meanwhile(&self, posts: &mut u64) {
        if let Some(post) = lock(&self.meanwhile).take() {
            post(self);
            *posts = self.posted.load(Ordering::Acquire);
        }
    }

    /// Posts a call at the first free port from `start` on, and tells of it if `told`.
    fn post_at(&self, start: usize, told: bool) -> usize {
        let mut client = Client::new(&self.frame, self.frame.layout(), start);
        let posted = client.try_post(7, &[1]).unwrap();
        if told {
            self.rung(posted.port, 1);
        }
        posted.port
    }
}

#[test]
fn what_comes_while_a_slice_is_gathered_is_taken_with_it_and_looked_for_once() {
    let frame = Frame::on_host(PortLayout::new(6, 4)).unwrap();
    let core = Core::new(1, None, frame, Vec::new(), LeasePolicy::host(), 1);
    let shape = SliceShape {
        given: 4,
        taken: 4,
        turns: 1,
        fails: false,
        together: None,
        group: 0,
    };
    let mut slices = Slices::new(shape, Vec::new());
    let mut taken = || match slices.gather(&core) {
        None => Vec::new(),
        Some(Calls::Ports(calls)) => calls.iter().map(|call| call.port).collect(),
        Some(Calls::Bulk(_)) => panic!("nobody has written any"),
    };
    assert!(taken().is_empty());
    assert_eq!(core.post_at(3, true), 3);
    // In front of the first slice, and behind.
    *lock(&core.meanwhile) = Some(Box::new(|core: &Core| {
        assert_eq!(core.post_at(1, true), 1);
        assert_eq!(core.post_at(4, true), 4);
    }));
    assert_eq!(taken(), [1, 3, 4]);
    // Nobody has told of anything since: there is no other look.
    assert_eq!(core.post_at(0, false), 0);
    assert!(taken().is_empty());
    core.rung(0, 1);
    assert_eq!(taken(), [0]);
    assert!(taken().is_empty());
}
