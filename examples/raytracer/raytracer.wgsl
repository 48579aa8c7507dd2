// One invocation for each pixel: a ray from the eye, bounced between mirrors. The sky is in `sky.wgsl`.

struct Sphere {
    centre: vec3<f32>,
    radius: f32,
    colour: vec3<f32>,
    mirror: f32,
}

struct Camera {
    eye: vec3<f32>,
    width: u32,
    ahead: vec3<f32>,
    height: u32,
    /// Pixels between two that report what they see.
    report: u32,
}

struct Hit {
    distance: f32,
    /// The sphere, -1 for the sea, -2 for the sky.
    what: i32,
}

@group(0) @binding(0) var<storage, read> spheres: array<Sphere>;
@group(0) @binding(1) var<uniform> camera: Camera;
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;

const FAR = 1e9;
// Beyond this the sea is haze, and 32 bits cannot tell where on a ball a ray from there arrives.
const HORIZON = 400.0;
const BOUNCES = 6u;

fn nearest(origin: vec3<f32>, ray: vec3<f32>) -> Hit {
    var hit = Hit(FAR, -2);
    let sea = -origin.y / ray.y;
    if ray.y < -1e-4 && sea < HORIZON {
        hit = Hit(sea, -1);
    }
    for (var i = 0u; i < arrayLength(&spheres); i++) {
        let to = spheres[i].centre - origin;
        let along = dot(to, ray);
        // Not dot(to, to) - along * along, which says nothing about balls that are far away.
        let beside = to - ray * along;
        let radius = spheres[i].radius;
        assert(radius > 0.0, "sphere {} at {:?} has radius {:.2}", i, spheres[i].centre, radius);
        let half = radius * radius - dot(beside, beside);
        if half > 0.0 {
            let distance = along - sqrt(half);
            if distance > 1e-3 && distance < hit.distance {
                hit = Hit(distance, i32(i));
            }
        }
    }
    return hit;
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= camera.width || id.y >= camera.height {
        return;
    }
    let size = vec2(f32(camera.width), f32(camera.height));
    let place = (vec2<f32>(id.xy) + 0.5 - size * 0.5) / size.y;
    let right = normalize(cross(camera.ahead, vec3(0.0, 1.0, 0.0)));
    let up = cross(right, camera.ahead);
    var ray = normalize(camera.ahead * 1.4 + right * place.x - up * place.y);
    var origin = camera.eye;
    var weight = vec3(1.0);
    var colour = vec3(0.0);
    let reports = id.x % camera.report == camera.report / 2u && id.y % camera.report == camera.report / 2u;

    var bounces = 0u;
    while bounces < BOUNCES {
        let hit = nearest(origin, ray);
        if reports && bounces == 0u {
            print("pixel {:>3}, {:>3}: sees {:>2} at {:8.2}, along {:+.2?}", id.x, id.y, hit.what, hit.distance, ray);
        }
        if hit.what == -2 {
            colour += weight * sky(ray);
            break;
        }
        let point = origin + ray * hit.distance;
        var normal = vec3(0.0, 1.0, 0.0);
        var own = vec3(0.0);
        var mirror = 0.35;
        if hit.what == -1 {
            let tile = floor(point.xz * 0.5);
            let odd = abs(tile.x + tile.y) % 2.0;
            own = mix(vec3(0.87, 0.76, 0.57), vec3(0.12, 0.36, 0.44), odd);
            own = mix(own, vec3(0.98, 0.78, 0.58), 1.0 - exp(-hit.distance * 0.012));
        } else {
            let sphere = spheres[hit.what];
            normal = (point - sphere.centre) / sphere.radius;
            own = sphere.colour;
            mirror = sphere.mirror;
        }
        let length = dot(normal, normal);
        assert(abs(length - 1.0) < 1e-2, "the normal {:?} of {} is {} long", normal, hit.what, sqrt(length));
        let start = point + normal * 1e-2;
        var light = 0.25;
        if nearest(start, SUN).what < 0 {
            light += 0.75 * max(dot(normal, SUN), 0.0);
        }
        colour += weight * own * light * (1.0 - mirror);
        weight *= mirror;
        origin = start;
        // Reflecting at a normal that is nearly of length 1 leaves a ray that is only nearly so, and less each time.
        ray = normalize(reflect(ray, normal));
        bounces++;
    }
    if reports && bounces > 1u {
        print("pixel {:>3}, {:>3}: {} bounces, colour {:.2}", id.x, id.y, bounces, colour);
    }
    let bytes = vec3<u32>(clamp(colour, vec3(0.0), vec3(1.0)) * 255.0 + 0.5);
    pixels[id.y * camera.width + id.x] = bytes.x | bytes.y << 8u | bytes.z << 16u | 0xff000000u;
}
