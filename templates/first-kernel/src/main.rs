//! A kernel that moves particles, and the program around it.

use bytemuck::{Pod, Zeroable};
use tombolo::{Constants, Context, Device, Program, layout_of};

/// One particle, as `particles.wgsl` declares it.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    /// Lies where WGSL keeps four bytes free behind a `vec3`.
    mass: f32,
}

/// Moves `particles` on `device`, `steps` times by `velocity`.
fn moved(
    device: &Device,
    particles: &[Particle],
    velocity: [f32; 3],
    steps: u32,
) -> Result<Vec<Particle>, Box<dyn std::error::Error>> {
    // The text is checked here; the structures of both sides are compared on request.
    let program = Program::new("particles.wgsl", include_str!("particles.wgsl"))?;
    program.check_layout("Particle", &layout_of!(Particle { position, mass }))?;
    // A program with more to do keeps its kernels.
    let kernel = device.kernel(&program, "main", &Constants::new().set("STEPS", steps))?;
    let buffer = device.buffer(particles)?;
    kernel
        .launch()
        .buffer("particles", &buffer)
        .value("velocity", &velocity)
        .invocations(particles.len() as u64)
        .submit()?;
    // Waits for the launch, and fails if it has failed.
    Ok(buffer.read()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The best adapter of the machine, or the one that WGPU_ADAPTER_NAME names.
    let device = Context::new()?.device()?;
    let start = Particle {
        position: [0.0, 1.0, 2.0],
        mass: 1.0,
    };
    let particles = moved(&device, &[start; 1000], [1.0, 0.0, -1.0], 3)?;
    println!("{}: {:?}", device.name(), particles[999]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same in Rust.
    fn expected(particle: &Particle, velocity: [f32; 3], steps: u32) -> Particle {
        let mut particle = *particle;
        for _ in 0..steps {
            for (place, by) in particle.position.iter_mut().zip(velocity) {
                *place += by;
            }
        }
        particle
    }

    #[test]
    fn every_adapter_moves_particles_as_rust_does() {
        let context = Context::new().unwrap();
        for adapter in context.adapters() {
            let device = context.device_at(adapter.index).unwrap();
            // Around the size of a work-group.
            for len in [1u16, 63, 64, 65, 1000] {
                // Multiples of 1/4, whose sums have no rounding.
                let particle = |i: u16| Particle {
                    position: [f32::from(i), 0.25 * f32::from(i), -3.0],
                    mass: 2.0,
                };
                let particles: Vec<Particle> = (0..len).map(particle).collect();
                let velocity = [0.5, -1.0, 0.25];
                let of_rust: Vec<Particle> = particles
                    .iter()
                    .map(|particle| expected(particle, velocity, 3))
                    .collect();
                let of_kernel = moved(&device, &particles, velocity, 3).unwrap();
                assert_eq!(of_kernel, of_rust, "{len} particles on {}", device.name());
            }
        }
    }
}
