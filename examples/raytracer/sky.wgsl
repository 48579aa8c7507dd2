// What a ray sees that meets nothing.

const SUN = vec3<f32>(0.48, 0.64, 0.6);

const _haze = vec3(0.98, 0.78, 0.58);
const _zenith = vec3(0.24, 0.42, 0.72);
const _glow = vec3(0.9, 0.7, 0.4);

fn sky(ray: vec3<f32>) -> vec3<f32> {
    let high = clamp(ray.y, 0.0, 1.0);
    let glow = pow(max(dot(ray, SUN), 0.0), 96.0);
    return mix(_haze, _zenith, sqrt(high)) + glow * _glow;
}
