package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// diskType is a file system for tests of power cuts.
type diskType struct {
	name  string
	bytes int64 // of an image: about the smallest that mkfs takes
	mkfs  []string
	// options for mount. They delay the file system's periodic commits, which would write
	// data that the store did not sync.
	options string
	// alone says that two images of one origin must not be mounted at once.
	alone bool
}

var diskTypes = []diskType{
	{name: "ext4", bytes: 48 << 20, mkfs: []string{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, options: "commit=300"},
	{name: "xfs", bytes: 320 << 20, mkfs: []string{"mkfs.xfs", "-q", "-f"}, options: "nouuid"},
	{name: "btrfs", bytes: 128 << 20, mkfs: []string{"mkfs.btrfs", "-q", "-f"}, options: "commit=300", alone: true},
}

// missing says why a file system cannot be used here; "" if it can.
func (d diskType) missing() string {
	if os.Geteuid() != 0 {
		return "mounting needs root"
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return "no loop devices: " + err.Error()
	}
	if _, err := lookPath(d.mkfs[0]); err != nil {
		return err.Error()
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err.Error()
	}
	if !bytes.Contains(known, []byte("\t"+d.name+"\n")) {
		if out, err := command("modprobe", d.name); err != nil {
			return fmt.Sprintf("the kernel has no %s: %s", d.name, bytes.TrimSpace(out))
		}
	}
	return ""
}

// lookPath also looks where administrators' tools are.
func lookPath(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// format makes an image.
func (d diskType) format(image string) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(d.bytes), f.Close()); err != nil {
		return err
	}
	tool, err := lookPath(d.mkfs[0])
	if err != nil {
		return err
	}
	if out, err := command(tool, append(d.mkfs[1:], image)...); err != nil {
		return fmt.Errorf("%s: %w: %s", d.mkfs[0], err, out)
	}
	return nil
}

// mounted is an image that is mounted.
type mounted struct{ dir string }

// mount mounts an image at dir, which it makes.
func (d diskType) mount(image, dir string) (*mounted, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	device, hold, err := attach(image)
	if err != nil {
		return nil, err
	}
	// The mount holds the device from here on, and the device goes with the mount.
	defer hold.Close()
	if err := unix.Mount(device, dir, d.name, 0, d.options); err != nil {
		return nil, fmt.Errorf("mount %s on %s as %s: %w", device, dir, d.name, err)
	}
	return &mounted{dir}, nil
}

// unmount unmounts the file system. If files in it are still open, it detaches the mount and
// returns an error.
func (m *mounted) unmount() error {
	forks.Lock() // a process that is being forked may hold files in it
	defer forks.Unlock()
	if err := unix.Unmount(m.dir, 0); err != nil {
		return errors.Join(fmt.Errorf("unmount %s: %w", m.dir, err), unix.Unmount(m.dir, unix.MNT_DETACH))
	}
	return os.Remove(m.dir)
}

// attach gives an image a loop device that the kernel removes when nobody uses it any more.
func attach(image string) (device string, hold *os.File, err error) {
	fd, err := openRaw(image) // it may be a file that this process serves
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", nil, fmt.Errorf("free loop device: %w", err)
		}
		device = "/dev/loop" + strconv.Itoa(n)
		if hold, err = os.OpenFile(device, os.O_RDWR, 0); err != nil {
			return "", nil, err
		}
		failed := unix.IoctlLoopConfigure(int(hold.Fd()), &unix.LoopConfig{Fd: uint32(fd), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if failed == nil {
			return device, hold, nil
		}
		failed = errors.Join(fmt.Errorf("attach %s to %s: %w", image, device, failed), hold.Close())
		if !errors.Is(failed, unix.EBUSY) { // somebody else took it in between
			return "", nil, failed
		}
	}
}

// copySparse copies an image without its holes.
func copySparse(to, from string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	for off := int64(0); ; {
		data, err := unix.Seek(int(src.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		if off, err = unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(dst, data), io.NewSectionReader(src, data, off-data)); err != nil {
			return err
		}
	}
}
