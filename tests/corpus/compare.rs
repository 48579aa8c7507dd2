//! The comparison: one entry point through wgpu alone and through tombolo, bit for bit.

use tombolo::{Constants, Device, Kernel, Launch, Program, kernel::KernelError};

use crate::entry::Entry;
use crate::harness::Fixture;
use crate::interface::{Binding, bindings};
use crate::raw::Reference;
use crate::sources;

/// Runs the entry point both ways and panics where they differ. False where both refuse it.
pub fn check(fixture: &Fixture, entry: &Entry) -> bool {
    let device = &fixture.device;
    let source =
        sources::text(entry.package, entry.file).unwrap_or_else(|message| panic!("{message}"));
    let bindings = bindings(&source, entry.name);
    for (name, _) in entry.given {
        assert!(
            bindings.iter().any(|binding| binding.name == *name),
            "the table gives a value for `{name}`, which the entry point does not use"
        );
    }
    let contents: Vec<Vec<u32>> = bindings.iter().map(|b| entry.contents(b)).collect();

    let reference = Reference::new(device.raw(), device.raw_queue(), &source, entry.name);
    let kernel = Program::new(entry.file, source.as_str())
        .and_then(|program| device.kernel(&program, entry.name, &Constants::new()));
    let (reference, kernel) = match (reference, kernel) {
        (Ok(reference), Ok(kernel)) => (reference, kernel),
        (reference, kernel) => {
            let wgpu = reference.err();
            expect_refusal(device, entry, &bindings, wgpu, kernel.err());
            return false;
        }
    };

    let run = || {
        reference
            .run(&bindings, &contents, entry.groups)
            .unwrap_or_else(|error| panic!("wgpu alone cannot run it: {error}"))
    };
    let expected = run();
    assert!(
        expected == run(),
        "wgpu alone does not give the same result twice: this entry point has no result to compare \
         with and does not belong in the corpus"
    );
    assert!(
        expected != contents,
        "the entry point wrote nothing: the table's inputs do not exercise it"
    );
    let actual = run_tombolo(device, &kernel, &bindings, &contents, entry.groups);
    compare(&bindings, &expected, &actual);
    true
}

/// Both must refuse what the adapter cannot run, and tombolo with an error that says so. The one
/// refusal of tombolo's own is for a kernel that leaves no storage buffer for the loop guard.
fn expect_refusal(
    device: &Device,
    entry: &Entry,
    bindings: &[Binding],
    wgpu: Option<String>,
    tombolo: Option<KernelError>,
) {
    let missing = entry.needs - device.raw().features();
    match (&wgpu, &tombolo) {
        (Some(_), Some(error)) if !missing.is_empty() && error.diagnostic().is_some() => {}
        (Some(_), Some(KernelError::Limit { wanted, limit, .. })) if wanted > limit => {}
        (None, Some(KernelError::Limit { what, wanted, .. })) if *what == "storage buffers" => {
            let own = bindings.iter().filter(|b| !b.uniform).count() as u64;
            let most = device.raw().limits().max_storage_buffers_per_shader_stage;
            assert_eq!(*wanted, own + 1, "{tombolo:?}");
            assert_eq!(own, u64::from(most), "{tombolo:?}");
        }
        _ => panic!(
            "refused, although the adapter lacks {missing:?}\nby wgpu: {}\nby tombolo: {}",
            wgpu.as_deref().unwrap_or("not at all"),
            tombolo.map_or("not at all".into(), |error| format!("{error:?}"))
        ),
    }
}

fn run_tombolo(
    device: &Device,
    kernel: &Kernel,
    bindings: &[Binding],
    contents: &[Vec<u32>],
    groups: [u32; 3],
) -> Vec<Vec<u32>> {
    let mut launch = kernel.launch().workgroups(groups);
    let mut buffers = Vec::new();
    for (binding, words) in bindings.iter().zip(contents) {
        if binding.uniform {
            launch = give_value(launch, &binding.name, words);
            buffers.push(None);
        } else {
            // Raw bytes: the corpus knows how its shaders lay their elements out.
            let bytes: &[u8] = bytemuck::cast_slice(words);
            let buffer = device.buffer(bytes).expect("room for a buffer");
            launch = launch.buffer(&binding.name, &buffer);
            buffers.push(Some(buffer));
        }
    }
    let event = launch
        .submit()
        .unwrap_or_else(|error| panic!("tombolo refused the launch: {error}"));
    event
        .wait()
        .unwrap_or_else(|error| panic!("tombolo failed the launch: {error}"));
    buffers
        .iter()
        .zip(contents)
        .map(|(buffer, words)| match buffer {
            Some(buffer) => {
                let bytes = buffer.read().expect("a launch that succeeded can be read");
                bytemuck::pod_collect_to_vec(&bytes)
            }
            None => words.clone(),
        })
        .collect()
}

/// Gives a uniform by value, as programs do; its size is known only here.
fn give_value(launch: Launch, name: &str, words: &[u32]) -> Launch {
    fn sized<const N: usize>(launch: Launch, name: &str, words: &[u32]) -> Launch
    where
        [u32; N]: bytemuck::NoUninit,
    {
        let value: [u32; N] = words.try_into().expect("the length was matched");
        launch.value(name, &value)
    }
    match words.len() {
        2 => sized::<2>(launch, name, words),
        3 => sized::<3>(launch, name, words),
        4 => sized::<4>(launch, name, words),
        6 => sized::<6>(launch, name, words),
        8 => sized::<8>(launch, name, words),
        12 => sized::<12>(launch, name, words),
        len => panic!("uniform `{name}` has {len} words: add that length here"),
    }
}

fn compare(bindings: &[Binding], expected: &[Vec<u32>], actual: &[Vec<u32>]) {
    for ((binding, expected), actual) in bindings.iter().zip(expected).zip(actual) {
        let name = &binding.name;
        assert_eq!(expected.len(), actual.len(), "words of `{name}`");
        let differing: Vec<usize> = (0..expected.len())
            .filter(|&i| expected[i] != actual[i])
            .collect();
        if let Some(&first) = differing.first() {
            panic!(
                "`{name}` differs in {} of {} words, first in word {first}: wgpu alone wrote \
                 {:#010x}, through tombolo it is {:#010x}",
                differing.len(),
                expected.len(),
                expected[first],
                actual[first]
            );
        }
    }
}
